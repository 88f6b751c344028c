"""The interface between a method's objective and the agent that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True)
class SourceData:
    """What is known of a (micro-)batch of responses `s` besides the learner's own log-probs."""

    source_mean_logp: Tensor
    """[s] mean log-prob under the source's old policy."""
    source_logps: Tensor
    """[s, t] per-token log-probs under the old policy; 0 where unknown (other tokens) or padded."""
    advantage: Tensor
    """[s]"""
    own: Tensor
    """[s] bool: drawn by the learner itself."""
    omega: Tensor
    """[s] omega[source, learner]; 1 for own responses."""
    length_scale: Tensor | None = None
    """[s] factor on the log-ratio when the two means are to be compared in another unit; None: all 1."""
    token_advantages: Tensor | None = None
    """[s, t] a critic's advantages, 0 where padded; None: there is no critic."""
    mean_length: float = 1.0
    """Tokens per response in the whole mini-batch: the mean over responses of sums over tokens divided by
    this is the mean over the mini-batch's tokens."""


class Objective(Protocol):
    """A loss per response, unreduced: the caller averages over the mini-batch.

    It is a multiple of the advantages: responses without any but 0 need not be computed.
    """

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """`logps[s, t]` of the learner with gradient, `mask[s, t]` of real tokens -> loss[s].

        `update` counts the optimiser updates already made in this step (stepwise clipping).
        """


def takes_ratios(objective: Objective) -> bool:
    """Whether its loss of own responses depends on the log-probs they were drawn with.

    An objective that only raises a likelihood says `takes_ratios = False`.
    """
    return bool(getattr(objective, "takes_ratios", True))


@runtime_checkable
class WindowedObjective(Protocol):
    """An objective that ignores peers' responses whose ratio is outside a window."""

    def window(self, update: int) -> tuple[float, float] | None:
        """The bounds after `update` updates in this step; None when the settings switch them off."""
