"""The metrics of one step: TRL's names under `agent/<name>/`, pairs under `cross/<source>-><learner>/`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from hacrl.agents.updater import UpdateReport
from hacrl.algorithm import own_advantages, ratio_quantiles
from hacrl.algorithm.diagnostics import largest_advantage, sample_statistics
from hacrl.methods import View
from hacrl.sharing import LearnerBatch, LossTerm
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team
from hacrl.training.updates import UpdateRecord, peer_window
from hacrl.types import EngineCheck, Trajectory


def step_metrics(team: Team, record: StepRecord, updates: Sequence[UpdateRecord]) -> dict[str, float]:
    """All metrics of a step. Only what is under `time/` and `runtime/` differs between equal runs."""
    values: dict[str, float] = {}
    for member in team.active:
        prefix = f"agent/{member.name}"
        own = [t for t in record.drawn if t.source == member.name]
        checks = record.engine_checks[member.name].values()
        ahead = record.ahead_checks[member.name].values()
        for key, value in (*_responses(own), *_engine(checks), *_ahead(ahead)):
            if member.trains or key != "frac_reward_zero_std":  # equal rewards cost a peer nothing
                values[f"{prefix}/{key}"] = value
        if team.recipe.dynamic_sampling:
            values[f"{prefix}/replaced"] = sum(t.source == member.name for t in record.replaced)
        values[f"{prefix}/capability"] = float(team.capability.estimates[team.names.index(member.name)])
    for member in team.learners:
        prefix = f"agent/{member.name}"
        for key, value in _updates(record.reports[member.name]):
            values[f"{prefix}/{key}"] = value
        for cause, count in record.batches[member.name].left_out.items():
            values[f"{prefix}/left_out/{cause}"] = count
        rows = [row for mini_batch in record.batches[member.name].mini_batches for row in mini_batch]
        values[f"{prefix}/nonzero_advantage"] = _mean([row.advantage != 0.0 for row in rows])
        if team.method.critic is not None:
            losses = [report.value_loss for report in record.reports[member.name]]
            values[f"{prefix}/value_loss"] = _mean(losses)
    values.update(_cross(team, record, updates))
    values.update(record.method_metrics)
    for learner, prediction in record.predictions.items():
        values[f"agent/{learner}/contextual/brier"] = prediction.brier
        values[f"agent/{learner}/contextual/spread"] = prediction.spread
    for cause, count in record.rejected.items():
        values[f"rejected/{cause}"] = count
    for key, count in record.pool.items():
        values[f"pool/{key}"] = count
    for cause, count in record.unscorable.items():
        values[f"unscorable/{cause}"] = count
    for name, late in record.staleness.items():
        values[f"async/{name}/staleness"] = late
        values[f"async/{name}/dropped"] = record.dropped[name]
    for name, used in record.memory.items():
        values |= {f"runtime/{name}/memory/{rank}": size for rank, size in enumerate(used)}
    values.update(_traffic(record))
    values.update(_times(team, record))
    return values


def method_metrics(team: Team, view: View, terms: Sequence[LossTerm]) -> dict[str, float]:
    """The method's own metrics of one learner. May score responses: call it before the first update."""
    learner = view.learner
    own = team.method.metrics(view, terms)
    if team.topology[learner] and (baseline := team.method.baseline(view)) is not None:
        own = {"baseline_bias": _baseline_bias(view, baseline), **own}
    values = {f"agent/{learner}/{key}": value for key, value in own.items()}
    for source in team.topology[learner]:
        pair = team.method.pair_metrics(view, source)
        values |= {f"cross/{source}->{learner}/{key}": value for key, value in pair.items()}
    return values


def _baseline_bias(view: View, baseline: Tensor) -> float:
    """Mean over prompts of the baseline minus the own mean, which is unbiased: an estimate of the bias."""
    table = view.table
    _, own = own_advantages(table.rewards, mask=table.mask)
    order = sorted(
        range(len(table.prompt_ids)), key=table.prompt_ids.__getitem__
    )  # not the order of sampling
    return float((baseline - own[view.k])[order].mean())


def _responses(own: Sequence[Trajectory]) -> Iterator[tuple[str, float]]:
    rewards = [t.reward for t in own if t.reward is not None]
    lengths = [t.length for t in own if t.length]
    yield "reward", _mean(rewards)
    yield "reward_std", torch.tensor(rewards).std().item() if len(rewards) > 1 else math.nan
    yield "accuracy", _mean([reward > 0 for reward in rewards])
    yield "scored", _mean([t.reward is not None for t in own])
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
    yield "updates", sum(not report.skipped for report in reports)
    yield "skipped_updates", sum(report.skipped for report in reports)
    yield "trained_tokens", sum(report.tokens for report in reports)


def _engine(checks: Collection[EngineCheck]) -> Iterator[tuple[str, float]]:
    """The responses' log-probs under the engine and under the trained model; nothing without an engine."""
    if checks:
        yield "engine/logp", _mean([check.engine_logp for check in checks])
        yield "engine/trainer_logp", _mean([check.trainer_logp for check in checks])
        yield "engine/logp_difference", _mean([check.difference for check in checks])
        yield "engine/logp_difference_max", max(check.difference for check in checks)
        yield "engine/rescored", sum(check.rescored for check in checks)
        yield "engine/weight", _mean([check.weight for check in checks])


def _ahead(checks: Collection[EngineCheck]) -> Iterator[tuple[str, float]]:
    """The responses' log-probs under the weights that drew them and under the present ones."""
    if checks:
        yield "ahead/logp", _mean([check.engine_logp for check in checks])
        yield "ahead/present_logp", _mean([check.trainer_logp for check in checks])
        yield "ahead/logp_difference_max", max(check.difference for check in checks)
        yield "ahead/weight", _mean([check.weight for check in checks])


def _cross(team: Team, record: StepRecord, updates: Sequence[UpdateRecord]) -> dict[str, float]:
    """For every pair: ratios, and the weights of the responses in the learner's updates."""
    values: dict[str, float] = {}
    rewards = torch.tensor([t.reward for t in record.trajectories if t.reward is not None])
    for learner in team.names:
        for source in team.topology[learner]:
            prefix = f"cross/{source}->{learner}"
            pair = [update.of(source) for update in updates if update.learner == learner]
            pair = [update for update in pair if update.rows]
            found = [
                *_ratios(pair),
                *_sample_statistics(pair),
                *record.cosines.get((source, learner), {}).items(),
            ]
            values |= {f"{prefix}/{key}": value for key, value in found}
            if pair:
                bound = weight_bound(team, source, learner, record.batches[learner], rewards)
                values[f"{prefix}/weight/bound"] = bound
    return values


def weight_bound(team: Team, source: str, learner: str, batch: LearnerBatch, rewards: Tensor) -> float:
    """The largest |weight * advantage| a response of the source can have; infinity where nothing bounds it.

    In a window the ratio is at most 1, so that the weight is at most omega.
    """
    if any(peer_window(group.objective, 0) is None for group in batch.update_groups):
        return math.inf
    sources = (learner, *team.topology[learner])
    responses = sum(member.samples for member in team.active if member.name in sources)
    omegas = [row.omega for mini_batch in batch.mini_batches for row in mini_batch if row.source == source]
    return max(omegas, default=0.0) * largest_advantage(responses, rewards, team.recipe.reward.maximum)


def _ratios(updates: Sequence[UpdateRecord]) -> Iterator[tuple[str, float]]:
    """The ratios of one source's responses; rows without an advantage have none."""
    places = [place for update in updates for place in update.places if place is not None]
    for side in ("inside", "below", "above") if places else ():
        yield side, places.count(side) / len(places)
    ratios = torch.cat([update.ratios for update in updates]) if updates else torch.zeros(0)
    ratios = ratios[~ratios.isnan()]
    if not len(ratios):
        return
    yield "ratio/mean", ratios.mean().item()
    levels = (0.05, 0.5, 0.95)
    for level, value in zip(levels, ratio_quantiles(ratios, levels).tolist(), strict=True):
        yield f"ratio/q{round(100 * level):02d}", value


def _sample_statistics(updates: Sequence[UpdateRecord]) -> Iterator[tuple[str, float]]:
    """The weights of one source's responses."""
    if not updates:
        return
    coefficients = [value for update in updates for value in update.coefficients]
    advantages = [row.advantage for update in updates for row in update.rows]
    found = sample_statistics(torch.tensor(coefficients), torch.tensor(advantages))
    yield "rows", found.rows
    yield "zero_gradient", found.zero_gradient
    yield "effective_sample_size", found.effective_sample_size
    yield "ess_ratio", found.ess_ratio
    yield "weight/variance", found.weight_variance
    yield "weight/largest", found.largest


def _traffic(record: StepRecord) -> dict[str, float]:
    """Bytes between the loop and each agent's process, in all and per response token."""
    values: dict[str, float] = {}
    for name, moved in record.traffic.items():
        drawn = sum(t.length for t in record.drawn if t.source == name)
        rows = (
            [row for part in record.batches[name].mini_batches for row in part]
            if name in record.batches
            else []
        )
        trained = sum(len(row.response_ids) for row in rows)
        values[f"runtime/{name}/bytes_drawn"] = moved.rollouts
        values[f"runtime/{name}/bytes_trained"] = moved.rows
        values[f"runtime/{name}/bytes_per_drawn_token"] = moved.rollouts / drawn if drawn else math.nan
        values[f"runtime/{name}/bytes_per_trained_token"] = moved.rows / trained if trained else math.nan
    return values


def _times(team: Team, record: StepRecord) -> dict[str, float]:
    values = {f"time/{phase}": seconds for phase, seconds in record.seconds.items()}
    values["time/step"] = record.elapsed
    for edge, moments in (("begin", record.begins), ("end", record.ends)):
        values |= {f"time/{edge}/{phase}": moment - record.began for phase, moment in moments.items()}
    for member in team.active:
        tokens = sum(t.length for t in record.drawn if t.source == member.name)
        seconds = record.seconds[f"sample/{member.name}"]
        values[f"time/tokens_per_second/{member.name}"] = tokens / seconds if seconds else math.nan
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
