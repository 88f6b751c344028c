"""Models' scores of responses: the learner's likelihood, a scorer's log-probs, a critic, an engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

import torch
from torch import Tensor

from hacrl.agents.agent import Agent
from hacrl.agents.logp_check import compared
from hacrl.algorithm.batch import takes_ratios
from hacrl.sharing import LearnerBatch, Reencoder, RewardTable, UpdateGroup
from hacrl.sharing.alignment import Span, common_spans, shared_out, token_ends
from hacrl.sharing.reencode import Encoded
from hacrl.training.team import Member, Team
from hacrl.types import EngineCheck, MiniBatch, Prompt, TrainingRow, Trajectory

Logps = tuple[float, ...]
Place = tuple[str, int]
"""Prompt and sample."""
Checks = Mapping[Place, EngineCheck]


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
    """The batch with the learner's own rows weighted by the checks of its responses.

    Peers' rows are unchanged: their ratio already uses the log-probs of the source's trained model.
    """
    if all(check.weight == 1.0 for check in checks.values()):
        return batch

    def weighted(row: TrainingRow) -> TrainingRow:
        return replace(row, weight=row.weight * checks[row.prompt_id, row.sample].weight) if row.own else row

    return _each_mini_batch(batch, lambda _, rows: tuple(map(weighted, rows)))


def present_logps(
    team: Team,
    member: Member,
    prompts: Iterable[Prompt],
    trajectories: Iterable[Trajectory],
    checks: dict[Place, EngineCheck],
) -> tuple[Trajectory, ...]:
    """The responses, the learner's own with the log-probs of its present weights, which did not draw them.

    So its updates start at a ratio of 1, as they do without drawing ahead. Into `checks` go the weights that
    correct for it (`sample_ahead`).
    """
    settings = team.recipe.sample_ahead
    assert settings is not None, "nothing is drawn ahead"
    cap = settings.correction_cap if settings.correction == "truncated" else None
    by_id = {prompt.id: prompt for prompt in prompts}
    found = list(trajectories)
    own = [place for place, t in enumerate(found) if t.source == member.name]
    rows = [(member.policy.encoder.encode_prompt(by_id[found[n].prompt_id]), found[n].token_ids) for n in own]
    for place, logps in zip(own, member.policy.score(rows) if rows else [], strict=True):
        drawn = found[place]
        checks[drawn.prompt_id, drawn.sample] = compared(drawn.token_logps, logps, cap=cap)
        found[place] = replace(drawn, token_logps=logps)
    return tuple(found)


def add_model_scores(
    team: Team,
    member: Member,
    batch: LearnerBatch,
    prompts: Iterable[Prompt],
    checks: dict[Place, EngineCheck],
) -> LearnerBatch:
    """The batch with scores: of scorers that a loss term names, of the critic, of the learner itself.

    If it computes in half precision, `checks` has its log-probs and those it drew its responses with.
    """
    scorers = _Scorers(team, member, {prompt.id: prompt for prompt in prompts}, batch.left_out)
    scored = _each_mini_batch(batch, scorers.scored)
    groups = []
    for group in scored.update_groups:
        ratios = group.scorer is None and takes_ratios(group.objective)
        mini_batches = member.policy.prepare(group.mini_batches, ratios)
        if ratios and team.dtypes[member.name] != "float32":
            _compare(group.mini_batches, mini_batches, checks)
        groups.append(replace(group, mini_batches=mini_batches))
    return replace(scored, update_groups=tuple(groups))


def _compare(
    drawn: Iterable[MiniBatch], prepared: Iterable[MiniBatch], checks: dict[Place, EngineCheck]
) -> None:
    for before, after in zip(chain(*drawn), chain(*prepared), strict=True):
        if before.own and before.advantage:  # the others were not computed
            check = compared(before.source_logps, after.source_logps)
            checks.setdefault((before.prompt_id, before.sample), check)


class _Scorers:
    """Lets agents score a learner's rows; one with other tokens reads prompt and text in its own."""

    def __init__(
        self, team: Team, member: Member, prompts: Mapping[str, Prompt], left_out: Counter[str]
    ) -> None:
        self._agents = {each.name: each.policy for each in team.members}
        self._learner = member.policy.encoder
        self._prompts = prompts
        self._left_out = left_out

    def scored(self, group: UpdateGroup, rows: MiniBatch) -> MiniBatch:
        """The rows with the scorers' log-probs in place of the sources'; without those it cannot read."""
        if group.scorer is None:
            return rows
        by_scorer: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            name = group.scorer if isinstance(group.scorer, str) else group.scorer[row.prompt_id]
            by_scorer.setdefault(name, []).append(place)
        found: dict[int, Logps] = {}
        for name, places in by_scorer.items():
            scores = self._scores(self._agents[name], [rows[place] for place in places])
            found |= {place: logps for place, logps in zip(places, scores, strict=True) if logps is not None}
        return tuple(
            replace(row, source_logps=found[i], source_mean_logp=fmean(found[i]), length_scale=1.0)
            for i, row in enumerate(rows)
            if i in found
        )

    def _scores(self, scorer: Agent, rows: Sequence[TrainingRow]) -> list[Logps | None]:
        """Log-probs per token of the learner; None where the scorer cannot read the response."""
        if scorer.encoder.vocabulary == self._learner.vocabulary:
            return list(scorer.score([(row.prompt_ids, row.response_ids) for row in rows]))
        read = [self._read_by(scorer, row) for row in rows]
        scores = iter(scorer.score([tokens for tokens, _ in filter(None, read)]))
        return [
            None
            if reading is None
            else shared_out(row.source_logps or (0.0,) * len(row.response_ids), next(scores), reading[1])
            for row, reading in zip(rows, read, strict=True)
        ]

    def _read_by(self, scorer: Agent, row: TrainingRow) -> tuple[Encoded, list[Span]] | None:
        """A row in the scorer's tokens, and where they end together with the learner's."""
        ended = not self._learner.decode_response(row.response_ids[-1:])
        text = self._learner.decode_response(row.response_ids)
        prompt = scorer.encoder.encode_prompt(self._prompts[row.prompt_id])
        tokens = scorer.encoder.encode_response(text)
        response = (*tokens, scorer.encoder.eos_id) if ended else tokens
        room = scorer.context_length
        if scorer.encoder.decode_response(tokens) != text or not response:
            self._left_out["drift"] += 1
            return None
        if room is not None and len(prompt) + len(response) > room:
            self._left_out["response_too_long"] += 1
            return None
        aligned = common_spans(
            token_ends(self._learner.decode_response, row.response_ids, text, ended),
            token_ends(scorer.encoder.decode_response, response, text, ended),
        )
        return Encoded(prompt, response), aligned


def _each_mini_batch(
    batch: LearnerBatch, change: Callable[[UpdateGroup, MiniBatch], MiniBatch]
) -> LearnerBatch:
    groups = [
        replace(group, mini_batches=tuple(change(group, rows) for rows in group.mini_batches))
        for group in batch.update_groups
    ]
    return replace(batch, update_groups=tuple(groups))
