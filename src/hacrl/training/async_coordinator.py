"""The progress of asynchronous agents: what each has published, and which have to wait."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition

from hacrl.training.step_record import StepRecord


@dataclass(frozen=True)
class StepSnapshot:
    """What has been published in one step, as one learner sees it."""

    step: int
    published: Mapping[str, StepRecord]
    """By source, the learner itself included."""
    new: frozenset[str]
    """The sources it receives for the first time."""
    trained_on: frozenset[str]
    """Those it has received and trained on before."""
    awaited: frozenset[str]
    """Those that have not published yet."""


class AsyncCoordinator:
    """The steps from one barrier to the next; every agent is a thread.

    Deadlock-free: the slowest agent never has to wait before a barrier, and every agent reaches the barrier
    or leaves. An agent that left is not waited for.
    """

    def __init__(
        self,
        agents: Collection[str],
        first: int,
        barrier: int,
        stopping: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Steps `first` to `barrier`, or fewer when `stopping`; `say` reports the step of every agent."""
        self._first, self._barrier = first, barrier
        self._stopping = stopping
        self._say = say
        self._begun = dict.fromkeys(agents, first - 1)
        self._newest = dict.fromkeys(agents, first - 1)
        """The last step each agent has published."""
        self._left: set[str] = set()
        self._published: defaultdict[int, dict[str, StepRecord]] = defaultdict(dict)
        self._received: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._started = time.perf_counter()
        self._finished: dict[int, float] = {}
        self._change = Condition()

    def begin(self, agent: str) -> int | None:
        """The agent's next step; None when it has passed the barrier.

        When stopping, the barrier becomes the first step that no agent has begun: all still reach it.
        """
        with self._change:
            if self._stopping():
                self._barrier = min(self._barrier, max(self._begun.values()) + 1)
            if self._begun[agent] == self._barrier:
                return None
            self._begun[agent] += 1
            self._say(", ".join(f"{name} in step {step}" for name, step in self._begun.items()))
            return self._begun[agent]

    def publish(self, agent: str, record: StepRecord) -> None:
        """Make the agent's verified responses available to the others."""
        with self._change:
            self._published[record.step][agent] = record
            self._newest[agent] = record.step
            self._change.notify_all()

    def wait(self, step: int, sources: Collection[str], staleness: int, seconds: float | None) -> None:
        """Wait until no source is more than `staleness` steps behind, for at most `seconds`.

        At the barrier, wait for every source without a time limit.
        """
        with self._change:
            if step == self._barrier:
                staleness, seconds = 0, None
            self._change.wait_for(lambda: self.behind(step, sources) <= staleness, seconds)

    def behind(self, step: int, sources: Collection[str]) -> int:
        """Steps by which the slowest source that has not left is behind `step`."""
        return max((step - self._newest[name] for name in sources if name not in self._left), default=0)

    def snapshots(self, learner: str, step: int, sources: Collection[str]) -> list[StepSnapshot]:
        """What has been published up to `step`, the newest first. Every source is new once per step."""
        found = []
        with self._change:
            for earlier in range(step, self._first - 1, -1):
                published = dict(self._published[earlier])
                received = self._received[learner, earlier]
                trained_on = frozenset(received)
                new = frozenset({learner, *sources} & published.keys() - trained_on)
                awaited = frozenset(self._newest.keys() & set(sources) - published.keys() - self._left)
                received |= new
                found.append(StepSnapshot(earlier, published, new, trained_on, awaited))
        return found

    def finish(self, step: int) -> None:
        """An agent has made its updates; the last one ends the step."""
        with self._change:
            self._finished[step] = time.perf_counter()

    def leave(self, agent: str) -> None:
        """The agent has finished or failed: nobody waits for it any more."""
        with self._change:
            self._left.add(agent)
            self._change.notify_all()

    def steps(self) -> Iterator[tuple[int, float, Sequence[StepRecord]]]:
        """All steps, the seconds from the end of the one before, and the agents' records, sorted by name."""
        before = self._started
        for step in range(self._first, self._barrier + 1):
            parts = self._published[step]
            yield step, self._finished[step] - before, [parts[name] for name in sorted(parts)]
            before = self._finished[step]
