"""How much faster agents on Ray are if they do not wait for each other in every step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.runtimes import make_team
from benchmarks.timing import Spread
from benchmarks.workload import NO_LEARNING, SIZES, Workload
from hacrl.analysis.tables import TextTable
from hacrl.training.async_loop import steps_until_barrier
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team

LARGE = Workload(SIZES["M"], eos_hazard=0.02, max_new=512, prompts=2, samples=4, learning_rate=NO_LEARNING)
"""An agent samples until its longest response ends. With 8 responses that end at random this varies between
steps; with the 128 of other benchmarks it is always the limit, and the same agent would always be slow."""
SMALL = replace(LARGE, size=replace(SIZES["S"], vocab=SIZES["M"].vocab))
"""Its vocabulary is the large one's: both have the same prompts."""
STEPS = 8
"""From one barrier to the next."""
Stretch = Sequence[StepRecord]
"""The steps from one barrier to the next."""


@dataclass(frozen=True)
class Waiting:
    """The same steps of a team both ways, in turns; all ratios are within a round."""

    synchronous: Spread
    """Steps per hour."""
    asynchronous: Spread
    gain: Spread
    """How many times as fast it is without waiting."""
    bound: Spread
    """The upper bound of the gain, from each agent's sampling and update times in synchronous steps."""


@dataclass(frozen=True)
class Teams:
    """Two large agents (alternating stragglers), and a small and a large one."""

    equal: Waiting
    unequal: Waiting


def waiting(repeats: Repeats = 5, markdown: Markdown = False, json_file: JsonFile = None) -> None:
    """Count the steps per hour of agents on a local Ray that wait for each other, and that do not.

    Two large agents, then a small and a large one, with responses of very different lengths. Every round has
    eight steps with waiting and the same eight without. The last column is an upper bound of the gain.
    """
    found = measure_waiting(repeats)
    show([waiting_table(found)], found, markdown, json_file)


def measure_waiting(repeats: int) -> Teams:
    """Every round has eight steps with waiting and the same ones without."""
    return Teams(_measure((LARGE, LARGE), repeats), _measure((SMALL, LARGE), repeats))


def _measure(works: Sequence[Workload], repeats: int) -> Waiting:
    """The order alternates from round to round, so that a drift of the machine's speed cancels out."""
    with tempfile.TemporaryDirectory() as folder:
        team = _team(Path(folder), works)
        try:
            progress("a new team: warming up")
            train_step(team, 1)
            waited: list[Stretch] = []
            free: list[Stretch] = []
            for number in range(repeats):
                progress(f"round {number + 1} of {repeats}")
                ways = [(waited, _synchronous), (free, steps_until_barrier)]
                for found, way in ways if number % 2 else reversed(ways):
                    found.append(list(way(team, 1 + STEPS * number)))
        finally:
            team.close()
    return compared(waited, free, team.names)


def _synchronous(team: Team, first: int) -> Iterator[StepRecord]:
    return (train_step(team, first + n) for n in range(STEPS))


def compared(waited: Sequence[Stretch], free: Sequence[Stretch], agents: Sequence[str]) -> Waiting:
    """The stretches of every round side by side."""
    pairs = zip(waited, free, strict=True)
    return Waiting(
        Spread.of([3600 * STEPS / _seconds(stretch) for stretch in waited]),
        Spread.of([3600 * STEPS / _seconds(stretch) for stretch in free]),
        gain=Spread.with_interval([_seconds(before) / _seconds(after) for before, after in pairs]),
        bound=Spread.with_interval([_bound(stretch, agents) for stretch in waited]),
    )


def _seconds(stretch: Stretch) -> float:
    return sum(record.elapsed for record in stretch)


def _bound(stretch: Stretch, agents: Sequence[str]) -> float:
    """Synchronous steps wait for the slowest agent of every phase; no run beats the agent with most work."""
    phases = [
        [record.seconds[f"{phase}/{agent}"] for agent in agents]
        for record in stretch
        for phase in ("sample", "update")
    ]
    return sum(map(max, phases)) / max(map(sum, zip(*phases, strict=True)))


def waiting_table(found: Teams) -> TextTable:
    """Both ways side by side."""
    rows = [
        (
            name,
            f"{team.synchronous.median:,.0f}",
            f"{team.asynchronous.median:,.0f}",
            f"{team.gain:.2f}",
            f"{team.bound:.2f}",
        )
        for name, team in (("two large agents", found.equal), ("a small and a large one", found.unequal))
    ]
    header = ("", "steps per hour, waiting", "not waiting", "gain", "gain at most")
    title = f"Agents on Ray, responses of very different lengths, a barrier every {STEPS} steps"
    return TextTable(title, header, rows)


def _team(folder: Path, works: Sequence[Workload]) -> Team:
    agents = [
        replace(work, seed=seed).save_agent(folder / name)
        for seed, (name, work) in enumerate(zip("ab", works, strict=True))
    ]
    return make_team(
        LARGE,
        agents,
        steps=1_000_000,
        checkpoint={"every": STEPS},
        exchange={"asynchronous": {"max_staleness": 2}},
        runtime="ray",
    )


app = command(waiting)

if __name__ == "__main__":
    app()
