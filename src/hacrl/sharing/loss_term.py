"""A lesson: which of a step's responses a learner trains on, with which weight, through which objective."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hacrl.algorithm.batch import Objective


@dataclass(frozen=True)
class LossTerm:
    """A part of what one learner does in a step; the axes are those of its `RewardTable`."""

    objective: Objective
    advantages: Tensor
    """[j, b, i]; a response with advantage 0 counts in the mean over the mini-batch but has no gradient."""
    mask: Tensor
    """[j, b, i] bool: the responses that take part."""
    coefficients: Tensor
    """[j]: what the gradient of each source's responses is multiplied by."""
    updates: int | None = None
    """None: every source's prompts in `mini_batches_per_source` updates, own responses first. A number: that
    many updates, each on some of the prompts and everybody's responses to them."""
    passes: int = 1
    """Times all of these updates are made, one pass after the other."""
    scorer: str | None = None
    """The agent whose policy before the step the ratio is taken to; None: the one that drew the response.
    It reads the learner's tokens, so that it is the learner itself or has the same tokenizer."""
    complete: bool = False
    """Peers' responses end with the learner's EOS, as what is imitated must; a ratio is taken without it."""
