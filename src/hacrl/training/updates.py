"""A step's updates in detail: ratios and gradient coefficients per row, gradients per source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hacrl.agents.agent import Agent
from hacrl.agents.backends.interfaces import response_mask
from hacrl.agents.updater import source_data
from hacrl.algorithm.batch import Objective, WindowedObjective
from hacrl.algorithm.diagnostics import cosine
from hacrl.algorithm.ratio import bounded
from hacrl.sharing import LearnerBatch
from hacrl.training.step_record import StepRecord
from hacrl.types import MiniBatch, TrainingRow

CPU = torch.device("cpu")
Window = tuple[float, float]
Place = Literal["inside", "below", "above"]


@dataclass(frozen=True)
class UpdateRecord:
    """One update that was made, and what it did with each of its rows."""

    learner: str
    number: int
    """Updates made before it in the step."""
    rows: MiniBatch
    window: Window | None
    """Bounds of peers' ratios; None where the objective has none."""
    ratios: Tensor
    """[s] float64; NaN for rows without an advantage, which are not computed."""
    coefficients: tuple[float, ...]
    """[s] gradient coefficients: weight times advantage; 0 for rows that are not computed."""

    @property
    def places(self) -> list[Place | None]:
        """[s] where peers' ratios lie; None for own rows, and where there is no window or no ratio."""
        ratios = self.ratios.tolist()
        return [
            None if row.own else _place(ratio, self.window)
            for row, ratio in zip(self.rows, ratios, strict=True)
        ]

    def of(self, source: str) -> UpdateRecord:
        """The rows of one source alone."""
        chosen = [i for i, row in enumerate(self.rows) if row.source == source]
        return replace(
            self,
            rows=tuple(self.rows[i] for i in chosen),
            ratios=self.ratios[chosen],
            coefficients=tuple(self.coefficients[i] for i in chosen),
        )


def update_records(record: StepRecord) -> list[UpdateRecord]:
    """All updates that were made in the step, learner by learner, in order; for metrics and update log."""
    found = []
    for learner, reports in record.reports.items():
        updates = numbered_updates(record.batches[learner])
        for report, (number, objective, rows) in zip(reports, updates, strict=False):
            means = torch.tensor(report.mean_logps, dtype=torch.float64)
            # Rows that were not computed have no advantage: no gradient, whatever their log-prob is.
            coefficients = gradient_coefficients(rows, means.nan_to_num(0.0).tolist(), objective, number)
            found.append(
                UpdateRecord(
                    learner,
                    number,
                    rows,
                    peer_window(objective, number),
                    _ratios(rows, means),
                    tuple(coefficients),
                )
            )
    return found


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


def peer_window(objective: Objective, update: int) -> Window | None:
    """Bounds outside which the objective gives peers' responses no gradient; None if it has none."""
    return objective.window(update) if isinstance(objective, WindowedObjective) else None


def gradient_coefficients(
    rows: Sequence[TrainingRow], mean_logps: Sequence[float], objective: Objective, update: int
) -> list[float]:
    """For each response, minus the derivative of its loss with respect to its mean log-prob.

    That is advantage times weight for every method; 0 where a clip or window cuts the response off. Only the
    mean of the learner's log-probs is known: all tokens are assumed to differ from the source's by the same.
    """
    data = source_data(rows, CPU)
    mean = torch.tensor(mean_logps)[:, None]
    mask = response_mask([(row.prompt_ids, row.response_ids) for row in rows], CPU)
    shifted = data.source_logps + mean - data.source_mean_logp[:, None]
    by_token = torch.tensor([bool(row.source_logps) for row in rows])[:, None]
    logps = torch.where(by_token, shifted, mean).masked_fill(~mask, 0.0).requires_grad_()
    losses = objective(logps, mask, data, update)
    if not losses.requires_grad:  # some objectives give no row a gradient
        return [0.0] * len(rows)
    (slopes,) = torch.autograd.grad(losses.sum(), logps)
    return [0.0 - slope for slope in slopes.sum(1).tolist()]


def _ratios(rows: MiniBatch, mean_logps: Tensor) -> Tensor:
    scales = torch.tensor([row.length_scale for row in rows], dtype=torch.float64)
    sources = torch.tensor([row.source_mean_logp for row in rows], dtype=torch.float64)
    return bounded(scales * (mean_logps - sources)).exp()


def _place(ratio: float, window: Window | None) -> Place | None:
    if window is None or ratio != ratio:
        return None
    low, high = window
    if ratio < low:
        return "below"
    return "above" if ratio > high else "inside"


class Part(NamedTuple):
    """Some of the responses a learner trains on."""

    source: str
    sign: int
    """Of the advantage: 1 or -1 for peers' responses, 0 for all of the learner's own."""


Gradients = Mapping[Part, Tensor]
"""The flat gradient of every part; a part without responses is not there."""


def gradients_by_part(policy: Agent, batch: LearnerBatch) -> dict[Part, Tensor]:
    """The gradients of a step's updates, added up, all at the weights before the first of them.

    Every update keeps its number, so that the window is the same as in training.
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
