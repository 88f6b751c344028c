"""Do peers' responses push a learner where its own push it? Gradients by source, without an update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from hacrl.agents.agent import Agent
from hacrl.algorithm.batch import Objective
from hacrl.algorithm.diagnostics import cosine
from hacrl.sharing import LearnerBatch
from hacrl.types import MiniBatch, TrainingRow


class Part(NamedTuple):
    """Some of the responses a learner trains on."""

    source: str
    sign: int
    """Of the advantage: 1 or -1 for peers' responses, 0 for all of the learner's own."""


Gradients = Mapping[Part, Tensor]
"""The flat gradient of every part; a part without responses is not there."""


def numbered_updates(batch: LearnerBatch) -> Iterator[tuple[int, Objective, MiniBatch]]:
    """The updates of a step as they are made: how many came before, the objective, the rows."""
    updates = [
        (group.objective, mini_batch)
        for group in batch.update_groups
        for mini_batch in group.updates
        if mini_batch
    ]
    for number, (objective, mini_batch) in enumerate(updates):
        yield number, objective, mini_batch


def gradients_by_part(policy: Agent, batch: LearnerBatch) -> dict[Part, Tensor]:
    """The gradients of a step's updates, added up, all at the weights before the first of them.

    Every update keeps its number, so that the window closes as it would in training.
    """
    totals: dict[Part, Tensor] = {}
    for number, objective, mini_batch in numbered_updates(batch):
        for part in sorted({_part(row) for row in mini_batch if row.advantage != 0.0}):
            # Rows without an advantage have no gradient but still count in the mean over the mini-batch.
            kept = tuple(row if _part(row) == part else replace(row, advantage=0.0) for row in mini_batch)
            gradient = policy.gradient(kept, objective, number)
            totals[part] = totals[part] + gradient if part in totals else gradient
    return totals


def cosines(gradients: Gradients, learner: str, source: str) -> dict[str, float]:
    """Between the source's gradient and the learner's own: all of it, and by the sign of the advantage.

    NaN where one of the two has no gradient.
    """
    nothing = torch.zeros_like(next(iter(gradients.values()), torch.zeros(1)))
    own = gradients.get(Part(learner, 0), nothing)
    right, wrong = (gradients.get(Part(source, sign), nothing) for sign in (1, -1))
    return {
        "cosine": cosine(right + wrong, own),
        "cosine_right": cosine(right, own),
        "cosine_wrong": cosine(wrong, own),
    }


def _part(row: TrainingRow) -> Part:
    if row.own:
        return Part(row.source, 0)
    return Part(row.source, 1 if row.advantage > 0 else -1)
