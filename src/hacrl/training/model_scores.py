"""What models say of responses: a learner's likelihood, the log-probs of a scorer, a critic, an engine."""

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
"""By prompt and number of the response."""


def likelihood(
    learner: Agent, tokens: Reencoder, table: RewardTable, chosen: Tensor, *, changed: bool = False
) -> Tensor:
    """[j, b, i]: the learner's mean log-prob per token of the chosen responses, EOS included; NaN elsewhere.

    What the learner drew itself has its log-probs, unless it has `changed` since then; the rest is written in
    its tokens and scored.
    """
    found = torch.full(chosen.shape, math.nan, dtype=torch.float64)
    places, rows = [], []
    for j, b, i in chosen.nonzero().tolist():
        trajectory = table.samples[j][b][i]
        if trajectory.source == learner.name and not changed:
            found[j, b, i] = fmean(trajectory.token_logps)
        elif not isinstance(encoded := tokens.encode(trajectory, complete=True), str):
            places.append((j, b, i))
            rows.append((encoded.prompt_ids, encoded.response_ids))
    scores = learner.score(rows) if rows else []
    for place, logps in zip(places, scores, strict=True):
        found[place] = fmean(logps)
    return found


def add_engine_weights(batch: LearnerBatch, checks: Checks) -> LearnerBatch:
    """The batch with the learner's own rows weighted as the checks of its responses say.

    Peers' rows stay as they are: their ratio compares with the source's trained model already.
    """
    if all(check.weight == 1.0 for check in checks.values()):
        return batch

    def weighted(row: TrainingRow) -> TrainingRow:
        return replace(row, weight=checks[row.prompt_id, row.sample].weight) if row.own else row

    return _each_mini_batch(batch, lambda _, rows: tuple(map(weighted, rows)))


def add_model_scores(team: Team, member: Member, batch: LearnerBatch) -> LearnerBatch:
    """The batch with other models' scores: of the scorer a loss term names, and of the learner's critic."""
    scored = _each_mini_batch(batch, lambda group, rows: _by_scorer(team, group.scorer, rows))
    judged = [
        replace(group, mini_batches=member.policy.judge(group.mini_batches)) for group in scored.update_groups
    ]
    return replace(scored, update_groups=tuple(judged))


def _by_scorer(team: Team, scorer: str | None, rows: MiniBatch) -> MiniBatch:
    """The rows with the log-probs of the agent that is named in place of the sources' own."""
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
