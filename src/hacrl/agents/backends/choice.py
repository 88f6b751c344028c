"""The choice of backends: the fastest whose log-probs agree with the plain forward."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from hacrl.agents.backends.body import body_of
from hacrl.agents.backends.fused import FusedDecoder, FusedScorer, ShardedScorer
from hacrl.agents.backends.interfaces import Decoder, Row, Scorer, UnsupportedModel
from hacrl.agents.backends.padded import PaddedScorer, PlainScorer, RecomputingDecoder
from hacrl.agents.backends.prefix_cache import CachedDecoder, SharedPrefixScorer
from hacrl.agents.errors import AgentError

Backend = TypeVar("Backend", Decoder, Scorer)
_log = logging.getLogger(__name__)

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}
"""Largest relative difference of a token's log-prob from the plain forward's."""
HALF_PRECISION_TOLERANCE = 0.03
"""Mean relative difference: rounding alone makes about 0.01, forgotten positions or norms more than 0.1."""
GRADIENT_TOLERANCE, HALF_PRECISION_GRADIENT_TOLERANCE = 1e-3, 0.2
"""Relative difference of a gradient from the plain forward's."""
LONGEST_WINDOW = 64
"""Sliding windows up to this one are exceeded when backends are tried; longer prompts would take too long."""


@dataclass(frozen=True, slots=True)
class Backends:
    """What decodes with a model, and what computes log-probs for training."""

    decoder: Decoder
    scorer: Scorer
    refused: dict[str, str] = field(default_factory=dict)
    """Names of the faster ones that were tried -> why they are not used."""

    @property
    def names(self) -> dict[str, str]:
        """Class names by task, for reports."""
        return {"decode": type(self.decoder).__name__, "train": type(self.scorer).__name__}


def choose_backends(
    model: PreTrainedModel, gradient_checkpointing: bool = False, *, sharded: bool = False
) -> Backends:
    """Try all backends on a few random tokens, fastest first; keep the first that agrees with the plain one.

    A model that is going to be sharded has to run each of its layers equally often on all ranks.
    """
    trial = _Trial(model)
    decoders: list[Callable[[PreTrainedModel], Decoder]] = [
        partial(FusedDecoder, copies=not sharded),
        CachedDecoder,
    ]
    scorers: list[Callable[[PreTrainedModel], Scorer]] = [
        partial(ShardedScorer if sharded else FusedScorer, checkpointing=gradient_checkpointing),
        SharedPrefixScorer,
        partial(PaddedScorer, checkpointing=gradient_checkpointing),
    ]
    if sharded or gradient_checkpointing:
        scorers.remove(SharedPrefixScorer)
        trial.refused["SharedPrefixScorer"] = (
            "several ranks hold the model, and it would run more often on some of them"
            if sharded
            else "transformers does not recompute layers that have a cache"
        )
    decoder = trial.first_agreeing(decoders, lambda d: decoded_logps(d, trial.rows, model.device))
    scorer = trial.first_agreeing(scorers, trial.checked_logps)
    if scorer is None and gradient_checkpointing:
        raise AgentError(
            f"{model.config.model_type!r} models do not support gradient_checkpointing without dropout: "
            "switch it off, or set the dropout rates in config.json to 0"
        )
    if isinstance(scorer, FusedScorer):
        trial.refused.pop("SharedPrefixScorer", None)  # it would be slower
    return Backends(decoder or RecomputingDecoder(model), scorer or PlainScorer(model), trial.refused)


@torch.inference_mode()
def decoded_logps(decoder: Decoder, rows: Sequence[Row], device: torch.device) -> Tensor:
    """Log-probs [s, t] of given responses as a decoding session sees them; 0 where padded."""
    prompts = list(dict.fromkeys(prompt for prompt, _ in rows))
    prompt_of_row = torch.tensor([prompts.index(prompt) for prompt, _ in rows], device=device)
    longest = max(len(response) for _, response in rows)
    logps = torch.zeros(len(rows), longest, device=device)
    logits, session = decoder.start(prompts, prompt_of_row)
    alive = list(range(len(rows)))
    for step in range(longest):
        tokens = torch.tensor([rows[row][1][step] for row in alive], device=device)
        logps[alive, step] = logits.float().log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
        going = [n for n, row in enumerate(alive) if len(rows[row][1]) > step + 1]
        if not going:
            break
        if len(going) < len(alive):
            session.keep(torch.tensor(going, device=device))
            alive, tokens = [alive[n] for n in going], tokens[going]
        logits = session.advance(tokens)
    return logps


class _Trial:
    """Random tokens, their log-probs in the plain forward, and which backends did not agree with them."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._exact = model.dtype in TOLERANCE
        self.rows = _random_rows(model.config.get_text_config())
        self.refused: dict[str, str] = {}
        self._first_weights = _first_weights(model)
        with torch.no_grad():
            self._truth = PlainScorer(model).logps(self.rows)

    def first_agreeing(
        self,
        candidates: Sequence[Callable[[PreTrainedModel], Backend]],
        logps: Callable[[Backend], Tensor],
    ) -> Backend | None:
        """The first one whose log-probs are right."""
        for candidate in candidates:
            name = (candidate.func if isinstance(candidate, partial) else candidate).__name__
            try:
                backend = candidate(self._model)
                difference = self._difference(logps(backend))
            except Exception as error:  # an architecture may fail in any way; a slower backend will do
                expected = isinstance(error, UnsupportedModel)
                self.refused[name] = str(error) if expected else f"{type(error).__name__}: {error}"
            else:
                if difference <= TOLERANCE.get(self._model.dtype, HALF_PRECISION_TOLERANCE):
                    return backend
                self.refused[name] = f"log-probs differ by {difference:.1%} from the plain forward's"
            _log.info("%s is not used: %s", name, self.refused[name])
        return None

    def checked_logps(self, scorer: Scorer) -> Tensor:
        """The log-probs, after a check that gradients reach the first weights through them.

        They would not if a layer's state after the prompt were cut off from what it was computed from.
        """
        logps = scorer.logps(self.rows)
        weights = self._first_weights
        if scorer.shares_prompts and weights is not None:
            (found,) = torch.autograd.grad(logps.sum(), weights)
            (truth,) = torch.autograd.grad(PlainScorer(self._model).logps(self.rows).sum(), weights)
            apart = float((found - truth).norm() / truth.norm())
            if not apart <= (GRADIENT_TOLERANCE if self._exact else HALF_PRECISION_GRADIENT_TOLERANCE):
                raise UnsupportedModel(f"gradients differ by {apart:.1%} from the plain forward's")
        return logps.detach()

    def _difference(self, logps: Tensor) -> float:
        """Relative, but not to log-probs nearer to 0 than 1; the mean in half precision, else the largest."""
        apart = (logps - self._truth).abs() / self._truth.abs().clamp(min=1.0)
        return float(apart.max() if self._exact else apart[self._truth != 0].mean())


def _first_weights(model: PreTrainedModel) -> Tensor | None:
    """The first layer's first trained weights, if the model keeps a state other than keys and values."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if not kinds - {"full_attention", "sliding_attention"}:
        return None
    embeddings = model.get_input_embeddings().weight
    trained = (p for p in body_of(model).parameters() if p.requires_grad and p is not embeddings)
    return next((p for p in trained if p.dim() > 1), None)


def _random_rows(config: PreTrainedConfig) -> list[Row]:
    """Three prompts of different lengths, the longest beyond a short window; responses of 1 to 7 tokens."""
    generator = torch.Generator().manual_seed(0)
    window = getattr(config, "sliding_window", None) or 0
    longest = max(9, window + 1 if window <= LONGEST_WINDOW else 0)

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(config.vocab_size, (length,), generator=generator).tolist())

    prompts = [tokens(3), tokens(longest), tokens(6)]
    return [(prompts[row % 3], tokens(length)) for row, length in enumerate((1, 7, 4, 5, 2, 7, 3))]
