"""One step as numbers: TRL's names under `agent/<name>/`, pairs under `cross/<source>-><learner>/`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hacrl.agents.updater import UpdateReport
from hacrl.algorithm import (
    HacpoObjective,
    HacpoParams,
    Objective,
    own_advantages,
    ratio_quantiles,
    window_shares,
)
from hacrl.algorithm.diagnostics import largest_advantage, worth
from hacrl.algorithm.ratio import bounded
from hacrl.methods.hacpo import JointGroup
from hacrl.sharing import LearnerBatch, arrange, hear
from hacrl.training.alignment import numbered_updates
from hacrl.training.step import StepRecord
from hacrl.training.team import Team
from hacrl.training.update_log import gradient_coefficients
from hacrl.types import EngineCheck, TrainingRow, Trajectory


def step_metrics(team: Team, record: StepRecord) -> dict[str, float]:
    """All metrics of a step. Only what is under `time/` and `runtime/` differs between equal runs."""
    values: dict[str, float] = {}
    for member in team.active:
        prefix = f"agent/{member.name}"
        own = [t for t in record.trajectories if t.source == member.name]
        checks = record.engine_checks[member.name].values()
        for key, value in (*_responses(own), *_updates(record.reports[member.name]), *_engine(checks)):
            values[f"{prefix}/{key}"] = value
        for cause, count in record.batches[member.name].left_out.items():
            values[f"{prefix}/left_out/{cause}"] = count
        values[f"{prefix}/capability"] = float(team.capability.estimates[team.names.index(member.name)])
        values |= _baseline_bias(team, record, member.name)
        if team.method.critic is not None:
            losses = [report.value_loss for report in record.reports[member.name]]
            values[f"{prefix}/value_loss"] = _mean(losses)
    values.update(_cross(team, record))
    for cause, count in record.rejected.items():
        values[f"rejected/{cause}"] = count
    for cause, count in record.unscorable.items():
        values[f"unscorable/{cause}"] = count
    for name, late in record.staleness.items():
        values[f"async/{name}/staleness"] = late
        values[f"async/{name}/dropped"] = record.dropped[name]
    values.update(_traffic(record))
    values.update(_times(team, record))
    return values


def _responses(own: Sequence[Trajectory]) -> Iterator[tuple[str, float]]:
    rewards = [t.reward for t in own if t.reward is not None]
    lengths = [len(t.token_ids) for t in own]
    yield "reward", _mean(rewards)
    yield "reward_std", torch.tensor(rewards).std().item() if len(rewards) > 1 else math.nan
    yield "accuracy", _mean([reward > 0 for reward in rewards])
    yield "unscored", len(own) - len(rewards)
    groups: dict[str, set[float | None]] = {}
    for trajectory in own:
        groups.setdefault(trajectory.prompt_id, set()).add(trajectory.reward)
    yield "frac_reward_zero_std", _mean([len(group) == 1 for group in groups.values()])
    yield "completions/mean_length", _mean(lengths)
    yield "completions/max_length", max(lengths, default=0)
    yield "completions/clipped_ratio", _mean([t.finish_reason == "length" for t in own])
    yield "num_tokens", sum(lengths)


def _updates(reports: Sequence[UpdateReport]) -> Iterator[tuple[str, float]]:
    yield "loss", _mean([report.loss for report in reports])
    yield "grad_norm", _mean([report.grad_norm for report in reports])
    yield "learning_rate", reports[-1].learning_rate if reports else math.nan
    yield "kl", _mean([report.kl for report in reports])
    yield "updates", len(reports)
    yield "trained_tokens", sum(report.tokens for report in reports)


def _engine(checks: Collection[EngineCheck]) -> Iterator[tuple[str, float]]:
    """What the engine that drew the responses and the trained model say of them; empty without an engine."""
    if checks:
        yield "engine/logp", _mean([check.engine_logp for check in checks])
        yield "engine/trainer_logp", _mean([check.trainer_logp for check in checks])
        yield "engine/logp_difference", _mean([check.difference for check in checks])
        yield "engine/logp_difference_max", max(check.difference for check in checks)
        yield "engine/rescored", sum(check.rescored for check in checks)
        yield "engine/weight", _mean([check.weight for check in checks])


def _baseline_bias(team: Team, record: StepRecord, learner: str) -> dict[str, float]:
    """Mean over prompts of baseline minus own mean, which is right on average: an estimate of the bias."""
    if not isinstance(team.method, JointGroup) or not team.topology[learner]:
        return {}
    k = team.names.index(learner)
    heard, _ = hear(record.trajectories, learner, team.topology[learner])
    table = arrange(record.step, heard, team.names, sorted({t.prompt_id for t in heard}))
    reward_max = team.recipe.reward.maximum
    _, baseline = team.method.advantages(table.rewards, record.omega, reward_max=reward_max, mask=table.mask)
    _, own = own_advantages(table.rewards, mask=table.mask)
    return {f"agent/{learner}/baseline_bias": float((baseline[k] - own[k]).mean())}


def _cross(team: Team, record: StepRecord) -> dict[str, float]:
    """For every pair: omega, where the ratios lie, and what the responses are worth."""
    values: dict[str, float] = {}
    params = _window(record)
    for k, learner in enumerate(team.names):
        for source in team.topology[learner]:
            prefix = f"cross/{source}->{learner}"
            values[f"{prefix}/omega"] = float(record.omega[team.names.index(source), k])
            updates = list(_peer_updates(record, learner, source))
            pairs = [
                *_ratios(updates, params),
                *_worth(updates),
                *record.cosines.get((source, learner), {}).items(),
            ]
            values |= {f"{prefix}/{key}": value for key, value in pairs}
            if updates:
                rewards = torch.tensor([t.reward for t in record.trajectories if t.reward is not None])
                bound = weight_bound(team, source, learner, record.batches[learner], rewards)
                values[f"{prefix}/weight/bound"] = bound
    return values


def _window(record: StepRecord) -> HacpoParams:
    """The window of the step's objective; the default one for methods that have none."""
    for batch in record.batches.values():
        for group in batch.update_groups:
            if isinstance(group.objective, HacpoObjective):
                return group.objective.params
    return HacpoParams()


def weight_bound(team: Team, source: str, learner: str, batch: LearnerBatch, rewards: Tensor) -> float:
    """The largest |weight * advantage| a response of the source can have; infinity where nothing bounds it.

    In HACPO's window the ratio is at most 1, so that the weight is at most omega.
    """
    objectives = [group.objective for group in batch.update_groups]
    if not all(isinstance(objective, HacpoObjective) and objective.params.window for objective in objectives):
        return math.inf
    heard = (learner, *team.topology[learner])
    answers = sum(member.samples for member in team.active if member.name in heard)
    omegas = [row.omega for mini_batch in batch.mini_batches for row in mini_batch if row.source == source]
    return max(omegas, default=0.0) * largest_advantage(answers, rewards, team.recipe.reward.maximum)


class _PeerUpdate(NamedTuple):
    """One update's rows from one source."""

    number: int
    objective: Objective
    rows: list[TrainingRow]
    mean_logps: Tensor
    """[s], the learner's; NaN for rows without an advantage, which are not computed."""


def _peer_updates(record: StepRecord, learner: str, source: str) -> Iterator[_PeerUpdate]:
    """Every update that was made on responses of the source."""
    if learner not in record.reports:  # it was lost before or while it learned
        return
    updates = numbered_updates(record.batches[learner])
    for (number, objective, mini_batch), report in zip(updates, record.reports[learner], strict=False):
        chosen = [i for i, row in enumerate(mini_batch) if row.source == source]
        if chosen:
            means = torch.tensor([report.mean_logps[i] for i in chosen], dtype=torch.float64)
            yield _PeerUpdate(number, objective, [mini_batch[i] for i in chosen], means)


def _ratios(updates: Sequence[_PeerUpdate], params: HacpoParams) -> Iterator[tuple[str, float]]:
    """Where the ratios of the responses with an advantage lie."""
    numbered = [(update.number, _sequence_ratios(update)) for update in updates]
    ratios = torch.cat([ratio for _, ratio in numbered]) if numbered else torch.zeros(0)
    if not len(ratios):
        return
    for side in ("inside", "below", "above"):
        shares = [
            (getattr(window_shares(ratio, number, params), side), len(ratio)) for number, ratio in numbered
        ]
        yield side, sum(share * count for share, count in shares) / len(ratios)
    yield "ratio/mean", ratios.mean().item()
    levels = (0.05, 0.5, 0.95)
    for level, value in zip(levels, ratio_quantiles(ratios, levels).tolist(), strict=True):
        yield f"ratio/q{round(100 * level):02d}", value


def _sequence_ratios(update: _PeerUpdate) -> Tensor:
    rows = update.rows
    scales = torch.tensor([row.length_scale for row in rows], dtype=torch.float64)
    sources = torch.tensor([row.source_mean_logp for row in rows], dtype=torch.float64)
    ratios = bounded(scales * (update.mean_logps - sources)).exp()
    return ratios[~ratios.isnan()]


def _worth(updates: Sequence[_PeerUpdate]) -> Iterator[tuple[str, float]]:
    """What all responses of a source are worth."""
    if not updates:
        return
    pulled: list[float] = []
    for update in updates:
        # Rows that were not computed have no advantage: whatever their log-prob is, nothing pulls them.
        means = update.mean_logps.nan_to_num(0.0).tolist()
        pulled += gradient_coefficients(update.rows, means, update.objective, update.number)
    advantage = [row.advantage for update in updates for row in update.rows]
    found = worth(torch.tensor(pulled), torch.tensor(advantage))
    yield "rows", found.rows
    yield "dead", found.dead
    yield "effective_sample_size", found.effective_sample_size
    yield "ess_ratio", found.ess_ratio
    yield "weight/variance", found.weight_variance
    yield "weight/largest", found.largest


def _traffic(record: StepRecord) -> dict[str, float]:
    """Bytes per response token between the loop and each agent's process."""
    values = {}
    for name, moved in record.traffic.items():
        drawn = sum(len(t.token_ids) for t in record.trajectories if t.source == name)
        rows = (
            [row for part in record.batches[name].mini_batches for row in part]
            if name in record.batches
            else []
        )
        taught = sum(len(row.response_ids) for row in rows)
        values[f"runtime/{name}/bytes_per_drawn_token"] = moved.rollouts / drawn if drawn else math.nan
        values[f"runtime/{name}/bytes_per_taught_token"] = moved.rows / taught if taught else math.nan
    return values


def _times(team: Team, record: StepRecord) -> dict[str, float]:
    values = {f"time/{phase}": seconds for phase, seconds in record.seconds.items()}
    values["time/step"] = record.elapsed
    for member in team.active:
        tokens = sum(len(t.token_ids) for t in record.trajectories if t.source == member.name)
        seconds = record.seconds[f"sample/{member.name}"]
        values[f"time/tokens_per_second/{member.name}"] = tokens / seconds if seconds else math.nan
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
