"""The training step: Algorithm 1 of arXiv 2603.02604 for any number of agents."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.updater import UpdateReport
from hacrl.methods import View
from hacrl.runtime import Traffic
from hacrl.sharing import (
    LearnerBatch,
    Reencoder,
    TrajectoryPool,
    UpdateGroup,
    arrange,
    build_batches,
    hear,
)
from hacrl.training.alignment import cosines, gradients_by_part
from hacrl.training.correction import corrected
from hacrl.training.likelihood import likelihood
from hacrl.training.team import Member, Team
from hacrl.types import EngineCheck, Prompt, Rollout, Trajectory


@dataclass
class StepRecord:
    """What happened in one step, for metrics, warnings and the screen."""

    step: int
    trajectories: tuple[Trajectory, ...] = ()
    omega: Tensor = field(default_factory=lambda: torch.ones(0, 0))
    prompts: tuple[Prompt, ...] = ()
    batches: dict[str, LearnerBatch] = field(default_factory=dict)
    reports: dict[str, list[UpdateReport]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    """Trajectories refused by the pool or by a learner, by cause."""
    unscorable: Counter[str] = field(default_factory=Counter)
    """Answers without a reward, by cause."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Of every agent's weights when it sampled."""
    engine_checks: defaultdict[str, dict[tuple[str, int], EngineCheck]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By agent, prompt and number of the response: what was drawn by an engine."""
    failures: dict[str, str] = field(default_factory=dict)
    """Agents whose updates were given up in this step, and why; the weights are as before the failed one."""
    cosines: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """By source and learner, in the steps that are audited (`hacrl.training.alignment`)."""
    staleness: dict[str, float] = field(default_factory=dict)
    """By learner that did not wait for its peers: how many steps late their answers were, on average."""
    dropped: Counter[str] = field(default_factory=Counter)
    """By such a learner: peers' answers that came too late to learn from."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Time by phase: `sample/<agent>`, `verify`, `wait/<agent>`, `exchange`, `audit`, `update/<agent>`;
    agents may work at the same time."""
    elapsed: float = 0.0
    """Seconds of the whole step."""
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """What went to and from the agents' processes; empty where they share ours."""

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the time of a phase."""
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start


def train_step(team: Team, step: int) -> StepRecord:
    """One step: sample, verify, share, and let every agent learn from everything it hears."""
    prompts = team.order.batch(step)  # 1. draw B prompts; freeze every policy as its old policy
    record, begun = StepRecord(step, prompts=tuple(prompts)), time.perf_counter()
    team.runtime.traffic()  # what was moved between steps is not this step's
    asked = team.method.assign(prompts, [member.name for member in team.active])
    record.fingerprints = team.each(lambda member: member.policy.fingerprint())
    drawn = team.each(lambda member: draw(team, member, asked[member.name], record))  # 2. everybody answers
    ids = {name: [prompt.id for prompt in asked[name]] for name in drawn}
    pool = TrajectoryPool(step, ids, {name: record.fingerprints[name] for name in drawn})
    for member in team.active:  # 3. every answer is verified
        pool.add(member.name, verified(team, member, asked[member.name], drawn[member.name], record))
    record.trajectories = pool.trajectories
    record.rejected.update(pool.rejected)

    team.capability.update(*batch_means(team, record.trajectories))  # 4. capability
    record.omega = team.capability.omega
    with record.timed("exchange"):  # 5.-6. advantages, coefficients, the learner's tokens
        believed = {member.name: heard(team, member, prompts, record) for member in team.active}
        record.batches = team.each(
            lambda member: scored(
                team, member, unscored(team, member, prompts, believed[member.name], record)
            )
        )
    for member in team.active:  # a learner whose scorer was lost sits this step out
        record.batches.setdefault(member.name, LearnerBatch((), Counter()))
    _audit(team, record)
    record.reports = team.each(lambda member: update(member, record))  # 7.-10. own, then the peers'
    record.traffic = team.runtime.traffic()
    record.elapsed = time.perf_counter() - begun
    return record


def answers(team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord) -> list[Trajectory]:
    """What one agent answers to the prompts, verified."""
    return verified(team, member, prompts, draw(team, member, prompts, record), record)


def draw(team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord) -> list[Rollout]:
    """What one agent answers to the prompts."""
    with record.timed(f"sample/{member.name}"):
        return member.policy.sample(prompts, member.samples, team.sampling, team.seed(record.step))


def verified(
    team: Team, member: Member, prompts: Sequence[Prompt], rollouts: Sequence[Rollout], record: StepRecord
) -> list[Trajectory]:
    """An agent's answers with their rewards."""
    with record.timed("verify"):
        scores = team.rewarder.score(
            [prompt for prompt in prompts for _ in range(member.samples)],
            [rollout.text for rollout in rollouts],
            [rollout.token_ids for rollout in rollouts],
        )
    record.unscorable.update(score.cause for score in scores if score.cause is not None)
    for rollout in rollouts:
        if rollout.engine is not None:
            record.engine_checks[member.name][rollout.prompt_id, rollout.sample] = rollout.engine
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
    return scored(team, member, unscored(team, member, prompts, heard(team, member, prompts, record), record))


def heard(
    team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord
) -> tuple[Trajectory, ...]:
    """What the learner hears and believes; one learner after the other, for verifiers are shared."""
    by_id = {prompt.id: prompt for prompt in prompts}
    believed, mistrusted = hear(
        record.trajectories, member.name, team.topology[member.name], team.reverify(by_id)
    )
    record.rejected.update(mistrusted)
    return believed


def unscored(
    team: Team,
    member: Member,
    prompts: Sequence[Prompt],
    believed: Sequence[Trajectory],
    record: StepRecord,
    taught: frozenset[str] = frozenset(),
    awaited: frozenset[str] = frozenset(),
) -> LearnerBatch:
    """The batch before other models have looked at it.

    Of agents that did not wait for all, some answers were `taught` before and others are `awaited`.
    """
    late = member.name in taught
    by_id = {prompt.id: prompt for prompt in prompts}
    table = arrange(record.step, believed, team.names, list(by_id))
    tokens = Reencoder(member.learner, by_id)
    view = View(
        member.name,
        table,
        record.omega,
        team.recipe.reward.maximum,
        team.recipe.updates.mini_batches,
        kinds=[prompt.kind for prompt in prompts],
        likelihood=lambda chosen: likelihood(member.policy, tokens, table, chosen, changed=late),
        taught=taught,
        awaited=awaited,
    )
    lessons = [replace(lesson, mask=lesson.mask & view.new) for lesson in team.method.loss_terms(view)]
    batch = build_batches(table, tokens, lessons, team.batch_settings)
    return corrected(batch, record.engine_checks[member.name])


def scored(team: Team, member: Member, batch: LearnerBatch) -> LearnerBatch:
    """The batch with what other models say of its rows: the scorer a lesson names, the learner's critic."""
    scored = [_by_scorer(team, group) for group in batch.update_groups]
    judged = [replace(each, mini_batches=member.policy.judge(each.mini_batches)) for each in scored]
    return replace(batch, update_groups=tuple(judged))


def _by_scorer(team: Team, group: UpdateGroup) -> UpdateGroup:
    """The group with the log-probs of the agent it names in place of the sources' own."""
    if group.scorer is None:
        return group
    scorer = next(member.policy for member in team.members if member.name == group.scorer)
    mini_batches = []
    for mini_batch in group.mini_batches:
        scores = scorer.score([(row.prompt_ids, row.response_ids) for row in mini_batch])
        mini_batches.append(
            tuple(
                replace(row, source_logps=logps, source_mean_logp=sum(logps) / len(logps), length_scale=1.0)
                for row, logps in zip(mini_batch, scores, strict=True)
            )
        )
    return replace(group, mini_batches=tuple(mini_batches))


def _audit(team: Team, record: StepRecord) -> None:
    if audited(team, record.step):
        with record.timed("audit"):
            for found in team.each(lambda member: alignment(team, member, record)).values():
                record.cosines.update(found)


def audited(team: Team, step: int) -> bool:
    """Every few steps, if the recipe says so."""
    return team.recipe.audit.every > 0 and step % team.recipe.audit.every == 0


def alignment(team: Team, member: Member, record: StepRecord) -> dict[tuple[str, str], dict[str, float]]:
    """Do peers' responses push a learner where its own push it? By source and learner."""
    gradients = gradients_by_part(member.policy, record.batches[member.name])
    sources = team.topology[member.name]
    return {(source, member.name): cosines(gradients, member.name, source) for source in sources}


def update(member: Member, record: StepRecord) -> list[UpdateReport]:
    """The learner's updates of this step; given up at the first loss that is not finite."""
    reports: list[UpdateReport] = []
    with record.timed(f"update/{member.name}"):
        try:
            for group in record.batches[member.name].update_groups:
                for mini_batch in group.updates:
                    reports += member.policy.update([mini_batch], group.objective, done=len(reports))
        except NonFiniteLoss as error:
            record.failures[member.name] = str(error)
    return reports
