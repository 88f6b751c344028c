"""Agents that do not wait for each other in every step.

Every agent runs its own steps: it responds to the step's prompts, publishes the verified responses, and
trains on its own and on what its peers have published so far. Responses that a peer publishes later are
trained on in a later step; their advantages are computed as if they had been on time. Some steps end at a
barrier, where every agent waits for all responses before it trains. Nothing is outstanding after a barrier,
so a checkpoint made there is the same as that of a synchronous run.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock

from torch import Tensor

from hacrl.recipe import Recipe
from hacrl.runtime import Traffic
from hacrl.sharing import LearnerBatch
from hacrl.training.async_coordinator import AsyncCoordinator, StepSnapshot
from hacrl.training.model_scores import add_model_scores
from hacrl.training.rollouts import assign, draw_ahead, finish_ahead, responses, verify
from hacrl.training.step import (
    Delivery,
    audit,
    audited,
    batch_means,
    build_batch,
    receive,
    update,
)
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Member, Team
from hacrl.types import Trajectory


def steps_until_barrier(
    team: Team,
    first: int,
    stopping: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[StepRecord]:
    """Run every agent to the next barrier; returns the records of these steps, in order.

    When `stopping`, the barrier is the first step that no agent has begun. `say` shows the progress.
    """
    members = team.active
    names = [member.name for member in members]
    coordinator = AsyncCoordinator(names, first, next_barrier(team.recipe, first), stopping, say)
    loop = _AgentLoop(team, coordinator, members)
    team.each(loop.run)
    return _records(team, coordinator)


def next_barrier(recipe: Recipe, step: int) -> int:
    """The first step from `step` on after which all agents are saved or evaluated."""
    assert recipe.checkpoint.every != "auto", "refused by the recipe"
    intervals = [every for every in (recipe.checkpoint.every, recipe.evaluation.every) if every]
    return min([recipe.steps, *(-(-step // every) * every for every in intervals)])


class _AgentLoop:
    """What every agent does between two barriers, each in a thread of its own."""

    def __init__(self, team: Team, coordinator: AsyncCoordinator, members: Sequence[Member]) -> None:
        settings = team.recipe.exchange.asynchronous
        assert settings is not None, "a synchronous run has train_step"
        self._team = team
        self._coordinator = coordinator
        self._members = members
        self._settings = settings
        self._age = 0 if team.ahead is None else 1
        """Steps by which responses are old when they are published, but for the first ones."""
        self._capability = copy.deepcopy(team.capability)
        self._accepted: defaultdict[tuple[str, int], tuple[Trajectory, ...]] = defaultdict(tuple)
        """By learner and step, from all deliveries so far, so that nothing is verified twice."""
        self._lock = Lock()
        """For verifiers and traffic counters, which all agents share."""
        self._moved: Counter[tuple[str, str]] = Counter()
        team.runtime.traffic()  # discard what was moved between steps

    def run(self, member: Member) -> None:
        """One agent's steps until the barrier; if it is lost, the others stop waiting for it."""
        try:
            while (step := self._coordinator.begin(member.name)) is not None:
                self._step(member, StepRecord(step))
        finally:
            self._coordinator.leave(member.name)

    def _step(self, member: Member, record: StepRecord) -> None:
        """The stages of `train_step` for one agent."""
        team, name, step = self._team, member.name, record.step
        asked = assign(team, team.order.batch(step), self._members)[name]
        record.weights = {name: member.policy.fingerprint()}
        record.fingerprints = dict(record.weights)
        drawn = responses(team, member, asked, record)
        with self._lock:
            record.trajectories = verify(team, member, asked, drawn, record)
        self._coordinator.publish(name, record)
        draw_ahead(team, member, self._members, record)
        if member.trains:
            self._train(member, record)
        finish_ahead(team, member, record)
        record.traffic = self._traffic(name)
        self._coordinator.finish(step)

    def _train(self, member: Member, record: StepRecord) -> None:
        """The second half of a step, which peers that only respond do not have."""
        team, name, step = self._team, member.name, record.step
        with record.timed(f"wait/{name}"):
            snapshots = self._wait(name, step)
        with record.timed("exchange"):
            batch = self._build_batch(member, snapshots, record)
        scored = add_model_scores(team, member, batch, record.prompts, record.engine_checks[name])
        record.batches = {name: _interleave_passes(scored)}
        if audited(team, step):
            with record.timed("audit"):
                audit(team, member, record)
        record.reports = {name: update(member, record)}

    def _wait(self, name: str, step: int) -> list[StepSnapshot]:
        """What has been published once the agent's sources are not too far behind."""
        sources, settings = self._team.topology[name], self._settings
        self._coordinator.wait(step, sources, settings.max_staleness - self._age, settings.wait_seconds)
        return self._coordinator.snapshots(name, step, sources)

    def _build_batch(
        self, member: Member, snapshots: Sequence[StepSnapshot], record: StepRecord
    ) -> LearnerBatch:
        """The updates of its own step, then those on late responses; too old responses are dropped."""
        name, omega = member.name, self._omega(snapshots)
        batches, ages = [], []
        for snapshot in snapshots:
            late = record.step - snapshot.step + (self._age if snapshot.step > 1 else 0)
            peers = len(_responses(snapshot, snapshot.new - {name}))
            if late > self._settings.max_staleness:
                record.dropped[name] += peers
            elif snapshot.new:
                received = self._receive(member, snapshot, omega, record)
                batches.append(build_batch(self._team, member, received, record))
                record.prompts += tuple(received.prompts)
                ages += [late] * peers
        record.staleness[name] = sum(ages) / len(ages) if ages else 0.0
        update_groups = tuple(group for batch in batches for group in batch.update_groups)
        return LearnerBatch(update_groups, sum((batch.left_out for batch in batches), Counter()))

    def _receive(self, member: Member, snapshot: StepSnapshot, omega: Tensor, record: StepRecord) -> Delivery:
        """The new responses of a step, together with those that the learner accepted before."""
        step, prompts = snapshot.step, self._team.order.batch(snapshot.step)
        new = _responses(snapshot, snapshot.new)
        sent = Delivery(step, prompts, new, omega, snapshot.trained_on, snapshot.awaited)
        with self._lock:
            received = receive(self._team, member, sent, record)
        self._accepted[member.name, step] += received.trajectories
        return replace(received, trajectories=self._accepted[member.name, step])

    def _omega(self, snapshots: Sequence[StepSnapshot]) -> Tensor:
        """Omega from the responses published up to the learner's own step; later ones are not used."""
        capability = copy.deepcopy(self._capability)
        for snapshot in reversed(snapshots):
            capability.update(*batch_means(self._team, _responses(snapshot, snapshot.published)))
        return capability.omega

    def _traffic(self, agent: str) -> dict[str, Traffic]:
        """What was moved to and from the agent since its last step."""
        with self._lock:
            for name, moved in self._team.runtime.traffic().items():
                self._moved.update({(name, "rollouts"): moved.rollouts, (name, "rows"): moved.rows})
            if (agent, "rows") not in self._moved:
                return {}
            return {agent: Traffic(self._moved.pop((agent, "rollouts")), self._moved.pop((agent, "rows")))}


def _interleave_passes(batch: LearnerBatch) -> LearnerBatch:
    """The first pass over all groups, then the second, so that late responses mix with the others."""
    groups = batch.update_groups
    passes = range(max((group.passes for group in groups), default=0))
    ordered = [replace(group, passes=1) for number in passes for group in groups if number < group.passes]
    return replace(batch, update_groups=tuple(ordered))


def _responses(snapshot: StepSnapshot, sources: Iterable[str]) -> tuple[Trajectory, ...]:
    """In the order of a synchronous step."""
    return tuple(t for source in sorted(sources) for t in snapshot.published[source].trajectories)


def _records(team: Team, coordinator: AsyncCoordinator) -> Iterator[StepRecord]:
    """One record per step, as `train_step` returns it; updates the team's capabilities."""
    for step, seconds, parts in coordinator.steps():
        record = StepRecord.merge(step, parts)
        team.capability.update(*batch_means(team, record.trajectories))
        record.omega = team.capability.omega
        record.elapsed = seconds
        yield record
