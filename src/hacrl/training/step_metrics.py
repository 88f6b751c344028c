"""One step as numbers: TRL's names under `agent/<name>/`, pairs under `cross/<source>-><learner>/`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hacrl.agents.learner import UpdateReport
from hacrl.algorithm import HacpoObjective, effective_sample_size, ratio_quantiles, window_shares
from hacrl.algorithm.diagnostics import peer_weights
from hacrl.algorithm.ratio import HacpoParams, bounded
from hacrl.training.team import Team
from hacrl.training.train import StepRecord
from hacrl.types import TrainingRow, Trajectory


def step_metrics(team: Team, record: StepRecord) -> dict[str, float]:
    """All metrics of a step. Times are under `time/`: nothing else differs between equal runs."""
    values: dict[str, float] = {}
    for member in team.active:
        prefix = f"agent/{member.name}"
        own = [t for t in record.trajectories if t.source == member.name]
        for key, value in (*_responses(own), *_updates(record.reports[member.name])):
            values[f"{prefix}/{key}"] = value
        for cause, count in record.batches[member.name].left_out.items():
            values[f"{prefix}/left_out/{cause}"] = count
        values[f"{prefix}/capability"] = float(team.capability.estimates[team.names.index(member.name)])
    values.update(_cross(team, record))
    for cause, count in record.rejected.items():
        values[f"rejected/{cause}"] = count
    for cause, count in record.unscorable.items():
        values[f"unscorable/{cause}"] = count
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


def _cross(team: Team, record: StepRecord) -> dict[str, float]:
    """For every pair: omega, where the ratios lie, and what the responses are worth."""
    values: dict[str, float] = {}
    params = _window(record)
    for k, learner in enumerate(team.names):
        for source in team.topology[learner]:
            prefix = f"cross/{source}->{learner}"
            values[f"{prefix}/omega"] = float(record.omega[team.names.index(source), k])
            rows = list(_peer_rows(record, learner, source))
            if rows:
                values |= {f"{prefix}/{key}": value for key, value in _pair(rows, params)}
    return values


def _window(record: StepRecord) -> HacpoParams:
    """The window of the step's objective; the default one for methods that have none."""
    for batch in record.batches.values():
        for exercise in batch.exercises:
            if isinstance(exercise.objective, HacpoObjective):
                return exercise.objective.params
    return HacpoParams()


def _peer_rows(
    record: StepRecord, learner: str, source: str
) -> Iterator[tuple[int, list[TrainingRow], Tensor]]:
    """For every update with a gradient from the source's responses: its number, those rows, their ratios."""
    mini_batches = record.batches[learner].mini_batches if learner in record.batches else ()
    for update, (mini_batch, report) in enumerate(
        zip(mini_batches, record.reports.get(learner, []), strict=False)
    ):
        chosen = [
            i
            for i, row in enumerate(mini_batch)
            if row.source == source and not math.isnan(report.mean_logps[i])
        ]
        if chosen:
            rows = [mini_batch[i] for i in chosen]
            log_ratio = [
                row.length_scale * (report.mean_logps[i] - row.source_mean_logp)
                for i, row in zip(chosen, rows, strict=True)
            ]
            yield update, rows, bounded(torch.tensor(log_ratio, dtype=torch.float64)).exp()


def _pair(
    updates: Sequence[tuple[int, list[TrainingRow], Tensor]], params: HacpoParams
) -> Iterator[tuple[str, float]]:
    ratios = torch.cat([ratio for _, _, ratio in updates])
    weights = torch.cat(
        [
            peer_weights(ratio, torch.tensor([row.omega for row in rows], dtype=ratio.dtype), update, params)
            for update, rows, ratio in updates
        ]
    )
    yield "rows", len(ratios)
    yield "effective_sample_size", effective_sample_size(weights)
    for side in ("inside", "below", "above"):
        shares = [
            (getattr(window_shares(ratio, update, params), side), len(ratio)) for update, _, ratio in updates
        ]
        yield side, sum(share * count for share, count in shares) / len(ratios)
    yield "ratio/mean", ratios.mean().item()
    levels = (0.05, 0.5, 0.95)
    for level, value in zip(levels, ratio_quantiles(ratios, levels).tolist(), strict=True):
        yield f"ratio/q{round(100 * level):02d}", value


def _times(team: Team, record: StepRecord) -> dict[str, float]:
    values = {f"time/{phase}": seconds for phase, seconds in record.seconds.items()}
    values["time/step"] = sum(record.seconds.values())
    for member in team.active:
        tokens = sum(len(t.token_ids) for t in record.trajectories if t.source == member.name)
        seconds = record.seconds[f"sample/{member.name}"]
        values[f"time/tokens_per_second/{member.name}"] = tokens / seconds if seconds else math.nan
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
