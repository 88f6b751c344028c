"""Responses that an engine drew with other probabilities than the trained model's count accordingly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hacrl.sharing import LearnerBatch
from hacrl.types import EngineCheck, TrainingRow

Checks = Mapping[tuple[str, int], EngineCheck]
"""By prompt and number of the response."""


def corrected(batch: LearnerBatch, checks: Checks) -> LearnerBatch:
    """The batch with the learner's own rows weighted as the checks of its responses say.

    Peers' rows stay as they are: their ratio compares with the source's trained model already.
    """
    if all(check.weight == 1.0 for check in checks.values()):
        return batch
    update_groups = [
        replace(
            group,
            mini_batches=tuple(
                tuple(_weighted(row, checks) for row in mini_batch) for mini_batch in group.mini_batches
            ),
        )
        for group in batch.update_groups
    ]
    return replace(batch, update_groups=tuple(update_groups))


def _weighted(row: TrainingRow, checks: Checks) -> TrainingRow:
    return replace(row, weight=checks[row.prompt_id, row.sample].weight) if row.own else row
