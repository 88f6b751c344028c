"""What flows through a run: prompts, rollouts, trajectories, training rows. Frozen; stdlib only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Message = Mapping[str, str]
"""One chat message: `role` and `content`, as in TRL's conversational format."""

FinishReason = Literal["stop", "length"]
"""`stop`: the response ends with the source's EOS token or a stop string. `length`: it was cut at the token
limit."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt whose responses can be verified."""

    id: str
    text: str | tuple[Message, ...]
    """Plain text, or chat messages."""
    kind: str = ""
    """The kind of prompt, for statistics by kind ("sort", "algebra", ...)."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every other column of the data set, passed on to the reward functions; `answer` by convention."""

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is a list of chat messages."""
        return not isinstance(self.text, str)


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """The log-probs of a response as it was drawn, by an engine or in half precision, and in training."""

    engine_logp: float
    """Mean log-prob per token under the engine."""
    trainer_logp: float
    """Mean log-prob per token under the trained model."""
    difference: float
    """Largest difference between the two at one token."""
    rescored: bool
    """Whether the difference was too large, so that the trained model's log-probs are used."""
    weight: float = 1.0
    """Weight of the response in the agent's own updates: 1, or the correction of the difference."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response in the tokens of the agent that drew it."""

    prompt_id: str
    sample: int
    text: str
    """The response decoded without special tokens, up to the stop string that ended it."""
    token_ids: tuple[int, ...]
    """All sampled tokens. If `finish_reason` is "stop", the last one is an EOS or completes `stop`. Empty:
    only the text is known."""
    token_logps: tuple[float, ...]
    """Log-probability of each sampled token under the sampling policy at temperature 1. Without `token_ids`,
    those of the text's tokens, without EOS; empty if they are not known."""
    finish_reason: FinishReason
    engine: EngineCheck | None = None
    """None: the trained model itself drew it."""
    stop: str | None = None
    """The stop string that ended it; None: it ended with an EOS or was cut."""
    ending: str = ""
    """What the tokens write after `text`: the stop string (unless the text includes it) and what the last
    token wrote beyond."""
    tokens: int = 0
    """Without `token_ids`: how many tokens the source has counted; 0: not known."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A verified response, as agents exchange it."""

    step: int
    prompt_id: str
    source: str
    """Name of the agent that drew it."""
    sample: int
    fingerprint: str
    """Fingerprint of the source's weights when it was drawn."""
    text: str
    reward: float | None
    """None: the verifier could not score it. Such a sample is masked, never counted as 0."""
    finish_reason: FinishReason
    token_ids: tuple[int, ...]
    """The source's own tokens: only the source itself trains on these; peers re-encode `text`. They and the
    log-probs may be unknown, as in `Rollout`."""
    token_logps: tuple[float, ...]
    stop: str | None = None
    """As in `Rollout`."""
    ending: str = ""
    """As in `Rollout`."""
    tokens: int = 0
    """As in `Rollout`."""

    @property
    def length(self) -> int:
        """Number of tokens; 0: not known."""
        return len(self.token_ids) or self.tokens

    @property
    def id(self) -> str:
        """Unique within a run."""
        return f"{self.step}/{self.prompt_id}/{self.source}/{self.sample}"

    @property
    def exchanged_logps(self) -> tuple[float, ...]:
        """The log-probs peers compare with: without a trailing EOS, unless the response is only that.

        A stop string is text like any other: peers can write it in their own tokens.
        """
        ends_with_eos = self.finish_reason == "stop" and self.stop is None and len(self.token_ids) > 1
        return self.token_logps[:-1] if ends_with_eos else self.token_logps

    @property
    def written(self) -> str:
        """The text of all tokens: what the exchanged log-probs are those of."""
        return self.text + self.ending

    @property
    def logp_sum(self) -> float:
        """Sum of the exchanged log-probs."""
        return sum(self.exchanged_logps)

    @property
    def logp_count(self) -> int:
        """Number of exchanged log-probs."""
        return len(self.exchanged_logps)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A critic's estimates for every token of a response, made before the step's first update."""

    advantages: tuple[float, ...]
    values: tuple[float, ...]
    """The expected reward before each token."""
    returns: tuple[float, ...]
    """The targets of the values."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One response as one learner trains on it: everything its update needs, in the learner's tokens."""

    prompt_id: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    source: str
    own: bool
    source_mean_logp: float
    """Mean log-prob under the source's old policy, in the unit the length normalisation asks for."""
    source_logps: tuple[float, ...]
    """Per-token log-probs under the source's old policy; empty for a peer's response whose text the two
    tokenizers split differently."""
    advantage: float
    omega: float
    """omega[source, learner], the capability discrepancy coefficient; 1 for own responses."""
    length_scale: float = 1.0
    """log-ratio = length_scale * (learner's mean log-prob - source_mean_logp); 1 where both are per token."""
    sample: int = 0
    """The number of the source's response to the prompt."""
    judgement: Judgement | None = None
    """None: the learner has no critic, and all tokens share one advantage."""
    weight: float = 1.0
    """Factor of the row's loss (`EngineCheck.weight`)."""


MiniBatch = tuple[TrainingRow, ...]
"""The rows of one optimiser update."""


class Encoder(Protocol):
    """How one agent encodes prompts and responses in its own tokens."""

    @property
    def eos_id(self) -> int:
        """The token that ends this agent's responses."""

    @property
    def vocabulary(self) -> str:
        """A digest of the tokens and their ids: agents with the same one read each other's tokens."""

    @property
    def start_ids(self) -> tuple[int, ...]:
        """What comes before plain text: BOS if the tokenizer writes one, or else EOS."""

    def encode_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """The prompt with chat template and exactly one BOS, as the agent sees it when sampling."""

    def encode_response(self, text: str) -> tuple[int, ...]:
        """A response's text without EOS; special-token look-alikes stay plain text."""

    def decode_response(self, token_ids: Sequence[int]) -> str:
        """The text of a response, special tokens left out."""
