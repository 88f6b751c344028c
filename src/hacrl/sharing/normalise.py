"""The unit in which a learner compares its probability of a peer's response with the peer's own.

Means per token of two tokenizers are not the same unit: one may split the same text three times as finely.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from hacrl.types import Trajectory

LengthNorm = Literal["own", "learner", "bytes"]
"""`own`: each side's sum over its own token count (the paper). `learner`: both sums over the learner's token
count. `bytes`: both sums over the UTF-8 bytes of the text, which no tokenizer changes."""


class SourceUnit(NamedTuple):
    """log-ratio = length_scale * (learner's mean log-prob per learner token - mean_logp)."""

    mean_logp: float
    length_scale: float


def source_unit(trajectory: Trajectory, learner_tokens: int, norm: LengthNorm) -> SourceUnit:
    """What a learner needs to know of a peer's log-probs, `learner_tokens` being its own count.

    With `bytes` the log-ratio is (learner's sum - source's sum) / bytes. The learner's loss averages over its
    own tokens, so the sums are taken over those, and the scale turns tokens into bytes.
    """
    if norm == "own":
        return SourceUnit(trajectory.logp_sum / trajectory.logp_count, 1.0)
    mean_logp = trajectory.logp_sum / learner_tokens
    if norm == "learner":
        return SourceUnit(mean_logp, 1.0)
    if norm == "bytes":
        # A response that is only EOS has no text: its one token counts as one byte.
        return SourceUnit(mean_logp, learner_tokens / max(1, len(trajectory.text.encode())))
    raise ValueError(f"length_norm: expected one of {get_args(LengthNorm)}, got {norm!r}")
