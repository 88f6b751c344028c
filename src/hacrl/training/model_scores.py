"""Models' scores of responses: the learner's likelihood, a scorer's log-probs, a critic, an engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from hacrl.agents.agent import Agent
from hacrl.sharing import LearnerBatch, Reencoder, RewardTable, UpdateGroup
from hacrl.training.team import Member, Team
from hacrl.types import EngineCheck, MiniBatch, TrainingRow

Checks = Mapping[tuple[str, int], EngineCheck]
"""By prompt and sample."""


def likelihood(
    learner: Agent, tokens: Reencoder, table: RewardTable, chosen: Tensor, *, changed: bool = False
) -> Tensor:
    """[j, b, i]: the learner's mean log-prob per token of the chosen responses as it trains on them.

    NaN elsewhere. The learner's own responses have log-probs from sampling, which hold unless it has
    `changed` since. The others are encoded in its tokens and scored.
    """
    found = torch.full(chosen.shape, math.nan, dtype=torch.float64)
    places, rows = [], []
    for j, b, i in chosen.nonzero().tolist():
        trajectory = table.samples[j][b][i]
        if trajectory.source == learner.name and not changed:
            found[j, b, i] = fmean(tokens.own_logps(trajectory))
        elif not isinstance(encoded := tokens.encode(trajectory, complete=True), str):
            places.append((j, b, i))
            rows.append((encoded.prompt_ids, encoded.response_ids))
    scores = learner.score(rows) if rows else []
    for place, logps in zip(places, scores, strict=True):
        found[place] = fmean(logps)
    return found


def add_engine_weights(batch: LearnerBatch, checks: Checks) -> LearnerBatch:
    """The batch with the learner's own rows weighted by the engine checks of its responses.

    Peers' rows are unchanged: their ratio already uses the log-probs of the source's trained model.
    """
    if all(check.weight == 1.0 for check in checks.values()):
        return batch

    def weighted(row: TrainingRow) -> TrainingRow:
        return replace(row, weight=checks[row.prompt_id, row.sample].weight) if row.own else row

    return _each_mini_batch(batch, lambda _, rows: tuple(map(weighted, rows)))


def add_model_scores(team: Team, member: Member, batch: LearnerBatch) -> LearnerBatch:
    """The batch with the scores of the scorer that a loss term names and of the learner's critic."""
    scored = _each_mini_batch(batch, lambda group, rows: _by_scorer(team, group.scorer, rows))
    judged = [
        replace(group, mini_batches=member.policy.judge(group.mini_batches)) for group in scored.update_groups
    ]
    return replace(scored, update_groups=tuple(judged))


def _by_scorer(team: Team, scorer: str | None, rows: MiniBatch) -> MiniBatch:
    """The rows with the scorer's log-probs in place of the sources'."""
    if scorer is None:
        return rows
    policy = next(member.policy for member in team.members if member.name == scorer)
    scores = policy.score([(row.prompt_ids, row.response_ids) for row in rows])
    return tuple(
        replace(row, source_logps=logps, source_mean_logp=sum(logps) / len(logps), length_scale=1.0)
        for row, logps in zip(rows, scores, strict=True)
    )


def _each_mini_batch(
    batch: LearnerBatch, change: Callable[[UpdateGroup, MiniBatch], MiniBatch]
) -> LearnerBatch:
    groups = [
        replace(group, mini_batches=tuple(change(group, rows) for rows in group.mini_batches))
        for group in batch.update_groups
    ]
    return replace(batch, update_groups=tuple(groups))
