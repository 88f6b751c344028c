"""How an agent samples and learns: small frozen records that refuse impossible values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Schedule = Literal["constant", "linear", "cosine"]
Correction = Literal["none", "truncated"]


def _require(holds: bool, setting: str, value: object, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{setting} is {value!r}: it must be {wanted}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How responses are drawn. The defaults are the paper's: the policy itself, nothing cut off."""

    max_new_tokens: int = 4096
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False
    """Always take the likeliest token; temperature and top_p play no part then."""
    max_rows: int = 512
    """Most responses decoded at the same time: bounds the memory of the key-value cache."""

    def __post_init__(self) -> None:
        _require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        _require(self.temperature > 0, "temperature", self.temperature, "above 0 (or set greedy)")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.max_rows >= 1, "max_rows", self.max_rows, "at least 1")


@dataclass(frozen=True, slots=True)
class Optimisation:
    """How an agent's weights are updated."""

    learning_rate: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    schedule: Schedule = "constant"
    warmup_updates: int = 0
    """Updates over which the learning rate rises linearly from 0."""
    total_updates: int | None = None
    """Updates after which a linear or cosine schedule reaches 0."""
    max_grad_norm: float = 1.0
    kl: float = 0.0
    """Weight of the KL divergence to the frozen initial policy, on own responses."""
    tokens_per_micro_batch: int = 16384
    """Most tokens computed at once: bounds memory, changes nothing else."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        _require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "two numbers in [0, 1)")
        _require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        _require(self.schedule in get_args(Schedule), "schedule", self.schedule, "constant, linear or cosine")
        _require(self.warmup_updates >= 0, "warmup_updates", self.warmup_updates, "at least 0")
        if self.schedule != "constant":
            known = self.total_updates is not None and self.total_updates > self.warmup_updates
            _require(known, "total_updates", self.total_updates, "set and above warmup_updates to decay")
        _require(self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        _require(self.kl >= 0, "kl", self.kl, "at least 0")
        _require(
            self.tokens_per_micro_batch >= 1,
            "tokens_per_micro_batch",
            self.tokens_per_micro_batch,
            "at least 1",
        )


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Train low-rank adapters (peft) instead of all weights."""

    rank: int = 16
    alpha: float = 32.0
    target_modules: tuple[str, ...] | str = "all-linear"
    """Names of the adapted modules, or "all-linear" for every linear layer but the head."""

    def __post_init__(self) -> None:
        _require(self.rank >= 1, "lora rank", self.rank, "at least 1")
        _require(self.alpha > 0, "lora alpha", self.alpha, "above 0")
        _require(bool(self.target_modules), "lora target_modules", self.target_modules, "not empty")


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """Draw responses with vLLM instead of the built-in sampler."""

    cache_gigabytes: float = 4.0
    """Size of the engine's key-value cache, which it takes at once; its weights come on top."""
    max_logprob_difference: float = 1e-3
    """A response with a token whose log-probs differ by more gets those of the trained model."""
    correction: Correction = "none"
    """`truncated`: such a response counts min(probability under the trained model / engine, cap)."""
    correction_cap: float = 2.0
    max_rows: int = 512
    """Most responses decoded at the same time."""

    def __post_init__(self) -> None:
        _require(self.cache_gigabytes > 0, "cache_gigabytes", self.cache_gigabytes, "above 0")
        bound = self.max_logprob_difference
        _require(bound >= 0, "max_logprob_difference", bound, "at least 0")
        _require(self.correction in get_args(Correction), "correction", self.correction, "none or truncated")
        _require(self.correction_cap >= 1, "correction_cap", self.correction_cap, "at least 1")
        _require(self.max_rows >= 1, "max_rows", self.max_rows, "at least 1")
