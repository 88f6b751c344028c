"""Agents that do not wait for each other in every step.

Every agent makes its own steps: it answers the step's prompts, publishes what was verified, and learns from
its own answers and from what its peers have published by then. What a peer publishes later is learned from
later, compared with the same answers as if it had come in time. In some steps all agents meet: there
everybody waits for the others' answers before it learns. Afterwards nobody has anything left to hear, and a
run is saved as if there had been no lateness.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from threading import Lock

from torch import Tensor

from hacrl.recipe import Recipe
from hacrl.runtime import Traffic
from hacrl.sharing import LearnerBatch, TrajectoryPool
from hacrl.training.async_coordinator import AsyncCoordinator, StepSnapshot
from hacrl.training.step import (
    StepRecord,
    alignment,
    audited,
    batch_means,
    draw,
    heard,
    scored,
    unscored,
    update,
    verified,
)
from hacrl.training.team import Member, Team
from hacrl.types import Trajectory


def steps_until_barrier(
    team: Team,
    first: int,
    stopping: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[StepRecord]:
    """Let every agent go on by itself until all meet; then the records of these steps, in order.

    When it is `stopping` the agents meet as soon as they can. `say` is told how far each of them is.
    """
    names = [member.name for member in team.active]
    board = AsyncCoordinator(names, first, next_barrier(team.recipe, first), stopping, say)
    loops = _Loops(team, board, names)
    team.each(loops.work)
    return _records(team, board)


def next_barrier(recipe: Recipe, step: int) -> int:
    """The first step from `step` on after which all agents are looked at: there they wait for each other."""
    intervals = [every for every in (recipe.checkpoint.every, recipe.evaluation.every) if every]
    return min([recipe.steps, *(-(-step // every) * every for every in intervals)])


class _Loops:
    """What every agent does between two meetings, each in a thread of its own."""

    def __init__(self, team: Team, board: AsyncCoordinator, names: Sequence[str]) -> None:
        settings = team.recipe.exchange.asynchronous
        assert settings is not None, "a synchronous run has train_step"
        self._team = team
        self._board = board
        self._names = names
        self._settings = settings
        self._capability = copy.deepcopy(team.capability)
        self._believed: defaultdict[tuple[str, int], tuple[Trajectory, ...]] = defaultdict(tuple)
        """By learner and step, of what it has heard: nothing is verified twice."""
        self._turn = Lock()
        """Verifiers and what counts the traffic are for one agent at a time."""
        self._moved: Counter[tuple[str, str]] = Counter()
        team.runtime.traffic()  # what was moved between steps is nobody's

    def work(self, member: Member) -> None:
        """One agent's steps until the meeting. Nobody waits for an agent that is lost on the way."""
        try:
            while (step := self._board.begin(member.name)) is not None:
                self._step(member, StepRecord(step))
        finally:
            self._board.leave(member.name)

    def _step(self, member: Member, record: StepRecord) -> None:
        """`train_step` for one agent: it answers, publishes, and learns from what it hears."""
        team, board, name, step = self._team, self._board, member.name, record.step
        asked = team.method.assign(team.order.batch(step), self._names)[name]
        record.fingerprints = {name: member.policy.fingerprint()}
        rollouts = draw(team, member, asked, record)
        pool = TrajectoryPool(step, {name: [prompt.id for prompt in asked]}, record.fingerprints)
        with self._turn:
            pool.add(name, verified(team, member, asked, rollouts, record))
        record.trajectories = pool.trajectories
        record.rejected.update(pool.rejected)
        board.publish(name, record)

        sources = team.topology[name]
        with record.timed(f"wait/{name}"):
            board.wait(step, sources, self._settings.max_staleness, self._settings.wait_seconds)
        with record.timed("exchange"):
            batch = self._batch(member, board.news(name, step, sources), record)
        record.batches = {name: _in_turns(scored(team, member, batch))}
        if audited(team, step):
            with record.timed("audit"):
                record.cosines = alignment(team, member, record)
        record.reports = {name: update(member, record)}
        record.traffic = self._traffic(name)
        board.finish(step)

    def _batch(self, member: Member, news: Sequence[StepSnapshot], record: StepRecord) -> LearnerBatch:
        """The own step's lessons first, then those of peers' late answers; the oldest are dropped."""
        team, name, omega = self._team, member.name, self._omega(news)
        batches, ages = [], []
        for each in news:
            late = record.step - each.step
            peers = sum(len(each.published[source].trajectories) for source in each.new - {name})
            if late > self._settings.max_staleness:
                record.dropped[name] += peers
            elif each.new:
                told = replace(record, step=each.step, trajectories=_answers(each, each.new), omega=omega)
                prompts = team.order.batch(each.step)
                with self._turn:
                    self._believed[name, each.step] += heard(team, member, prompts, told)
                known = self._believed[name, each.step]
                batches.append(unscored(team, member, prompts, known, told, each.taught, each.awaited))
                record.prompts += tuple(prompts)
                ages += [late] * peers
        record.staleness[name] = sum(ages) / len(ages) if ages else 0.0
        update_groups = tuple(group for batch in batches for group in batch.update_groups)
        return LearnerBatch(update_groups, sum((batch.left_out for batch in batches), Counter()))

    def _omega(self, news: Sequence[StepSnapshot]) -> Tensor:
        """From what is known of everybody up to the learner's own step: later answers are not looked at."""
        capability = copy.deepcopy(self._capability)
        for each in reversed(news):
            capability.update(*batch_means(self._team, _answers(each, each.published)))
        return capability.omega

    def _traffic(self, agent: str) -> dict[str, Traffic]:
        """What was moved to and from the agent since its last step."""
        with self._turn:
            for name, moved in self._team.runtime.traffic().items():
                self._moved.update({(name, "rollouts"): moved.rollouts, (name, "rows"): moved.rows})
            if (agent, "rows") not in self._moved:
                return {}
            return {agent: Traffic(self._moved.pop((agent, "rollouts")), self._moved.pop((agent, "rows")))}


def _in_turns(batch: LearnerBatch) -> LearnerBatch:
    """The first pass of everything, then the second: late answers are mixed with the rest, as in time."""
    update_groups = batch.update_groups
    turns = range(max((group.passes for group in update_groups), default=0))
    ordered = [replace(each, passes=1) for turn in turns for each in update_groups if turn < each.passes]
    return replace(batch, update_groups=tuple(ordered))


def _answers(news: StepSnapshot, sources: Iterable[str]) -> tuple[Trajectory, ...]:
    """In the order in which a step's pool has them."""
    return tuple(t for source in sorted(sources) for t in news.published[source].trajectories)


def _records(team: Team, board: AsyncCoordinator) -> Iterator[StepRecord]:
    """Every step as a whole, as `train_step` would report it; the team's capabilities follow."""
    for step, seconds, parts in board.steps():
        record = _together(step, parts)
        team.capability.update(*batch_means(team, record.trajectories))
        record.omega = team.capability.omega
        record.elapsed = seconds
        yield record


def _together(step: int, parts: Sequence[StepRecord]) -> StepRecord:
    """One record of what each agent recorded."""
    prompts = {prompt.id: prompt for part in parts for prompt in part.prompts}
    answers = tuple(trajectory for part in parts for trajectory in part.trajectories)
    whole = StepRecord(step, answers, prompts=tuple(prompts.values()))
    for part in parts:
        for phase, seconds in part.seconds.items():
            whole.seconds[phase] += seconds
        for field in fields(StepRecord):  # all others are counts, which are added, or by agent
            total = getattr(whole, field.name)
            if isinstance(total, dict) and field.name != "seconds":
                total.update(getattr(part, field.name))
    return whole
