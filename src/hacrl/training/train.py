"""The training step: Algorithm 1 of arXiv 2603.02604 for any number of agents."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.learner import UpdateReport
from hacrl.exchange import Exercise, LearnerBatch, TrajectoryPool, arrange, build_batches, hear, told
from hacrl.methods import View
from hacrl.training.alignment import cosines, gradients_by_part
from hacrl.training.team import Member, Team
from hacrl.types import Prompt, Trajectory


@dataclass
class StepRecord:
    """What happened in one step, for metrics, warnings and the screen."""

    step: int
    trajectories: tuple[Trajectory, ...] = ()
    omega: Tensor = field(default_factory=lambda: torch.ones(0, 0))
    batches: dict[str, LearnerBatch] = field(default_factory=dict)
    reports: dict[str, list[UpdateReport]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    """Trajectories refused by the pool or by a learner, by cause."""
    unscorable: Counter[str] = field(default_factory=Counter)
    """Answers without a reward, by cause."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Of every agent's weights when it sampled."""
    failures: dict[str, str] = field(default_factory=dict)
    """Agents whose updates were given up in this step, and why; the weights are as before the failed one."""
    cosines: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """By source and learner, in the steps that are audited (`hacrl.training.alignment`)."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Time by phase: `sample/<agent>`, `verify`, `exchange`, `audit`, `update/<agent>`."""

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the time of a phase."""
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start


def train_step(team: Team, step: int) -> StepRecord:
    """One step: sample, verify, share, and let every agent learn from everything it hears."""
    record = StepRecord(step)
    prompts = team.order.batch(step)  # 1. draw B prompts; freeze every policy as its old policy
    asked = team.method.assign(prompts, [member.name for member in team.active])
    record.fingerprints = {member.name: member.policy.fingerprint() for member in team.active}
    ids = {name: [prompt.id for prompt in own] for name, own in asked.items()}
    pool = TrajectoryPool(step, ids, record.fingerprints)
    for member in team.active:  # 2.-3. every agent answers, every answer is verified
        pool.add(member.name, answers(team, member, asked[member.name], record))
    record.trajectories = pool.trajectories
    record.rejected.update(pool.rejected)

    team.capability.update(*batch_means(team, record.trajectories))  # 4. capability
    record.omega = team.capability.omega
    for member in team.active:  # 5.-6. advantages, coefficients, the learner's tokens
        with record.timed("exchange"):
            record.batches[member.name] = learner_batch(team, member, prompts, record)
    for member in team.active:  # 7.-10. own responses first, then the peers'
        _audit(team, member, record)
        with record.timed(f"update/{member.name}"):
            _update(member, record.batches[member.name], record)
    return record


def answers(team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord) -> list[Trajectory]:
    """What one agent answers to the prompts, verified."""
    with record.timed(f"sample/{member.name}"):
        rollouts = member.policy.sample(prompts, member.samples, team.sampling, team.seed(record.step))
    with record.timed("verify"):
        scores = team.rewarder.score(
            [prompt for prompt in prompts for _ in range(member.samples)],
            [rollout.text for rollout in rollouts],
            [rollout.token_ids for rollout in rollouts],
        )
    record.unscorable.update(score.cause for score in scores if score.cause is not None)
    fingerprint = record.fingerprints[member.name]
    return [
        Trajectory(
            step=record.step,
            prompt_id=rollout.prompt_id,
            source=member.name,
            sample=rollout.sample,
            fingerprint=fingerprint,
            text=rollout.text,
            reward=score.reward,
            finish_reason=rollout.finish_reason,
            token_ids=rollout.token_ids,
            token_logps=rollout.token_logps,
        )
        for rollout, score in zip(rollouts, scores, strict=True)
    ]


def batch_means(team: Team, trajectories: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
    """Every agent's mean reward (or share of rewards above zero) in this batch, and who has any."""
    values: dict[str, list[float]] = {name: [] for name in team.names}
    for trajectory in trajectories:
        if trajectory.reward is not None:
            positive = team.recipe.capability.measure == "positive_rate"
            values[trajectory.source].append(float(trajectory.reward > 0) if positive else trajectory.reward)
    means = [sum(rewards) / max(1, len(rewards)) for rewards in values.values()]
    return torch.tensor(means, dtype=torch.float64), torch.tensor([bool(v) for v in values.values()])


def learner_batch(team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord) -> LearnerBatch:
    """The learner's training batch: what it hears, as its method wants it taught."""
    recipe, by_id = team.recipe, {prompt.id: prompt for prompt in prompts}
    heard, mistrusted = hear(
        _as_told(team, member.name, record), member.name, team.topology[member.name], team.reverify(by_id)
    )
    record.rejected.update(mistrusted)
    table = arrange(record.step, heard, team.names, list(by_id))
    view = View(member.name, table, record.omega, recipe.reward.maximum, recipe.updates.mini_batches)
    batch = build_batches(table, member.learner, by_id, team.method.lessons(view), team.batch_settings)
    scored = [_scored(team, exercise) for exercise in batch.exercises]
    judged = [replace(each, mini_batches=member.policy.judge(each.mini_batches)) for each in scored]
    return replace(batch, exercises=tuple(judged))


def _scored(team: Team, exercise: Exercise) -> Exercise:
    """The exercise with the log-probs of the agent it names in place of the sources' own."""
    if exercise.scorer is None:
        return exercise
    scorer = next(member.policy for member in team.members if member.name == exercise.scorer)
    mini_batches = []
    for mini_batch in exercise.mini_batches:
        scores = scorer.score([(row.prompt_ids, row.response_ids) for row in mini_batch])
        mini_batches.append(
            tuple(
                replace(row, source_logps=logps, source_mean_logp=sum(logps) / len(logps), length_scale=1.0)
                for row, logps in zip(mini_batch, scores, strict=True)
            )
        )
    return replace(exercise, mini_batches=tuple(mini_batches))


def _as_told(team: Team, learner: str, record: StepRecord) -> Sequence[Trajectory]:
    """The step's trajectories as the learner knows them: it is never wrong about its own."""
    exchange = team.recipe.exchange
    return told(
        record.trajectories,
        shuffled=set(exchange.shuffled) - {learner},
        inverted=set(exchange.inverted) - {learner},
        reward_max=team.recipe.reward.maximum,
        seed=team.seed(f"faults/{record.step}"),
    )


def _audit(team: Team, member: Member, record: StepRecord) -> None:
    """Every few steps, if the recipe says so: do peers' responses push the learner where its own push it?"""
    every = team.recipe.audit.every
    if every and record.step % every == 0:
        with record.timed("audit"):
            gradients = gradients_by_part(member.policy, record.batches[member.name])
            for source in team.topology[member.name]:
                record.cosines[source, member.name] = cosines(gradients, member.name, source)


def _update(member: Member, batch: LearnerBatch, record: StepRecord) -> None:
    """The learner's updates of this step; given up at the first loss that is not finite."""
    reports = record.reports[member.name] = []
    try:
        for exercise in batch.exercises:
            for mini_batch in exercise.mini_batches:
                reports += member.policy.update([mini_batch], exercise.objective, done=len(reports))
    except NonFiniteLoss as error:
        record.failures[member.name] = str(error)
