"""What it brings two agents on Ray not to wait for each other in every step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

from hacrl.bench.peer.result import Spread
from hacrl.bench.peer.workload import SIZES, Workload, make_model, make_prompts, make_tokenizer, reward
from hacrl.bench.tables import Table
from hacrl.huggingface import no_progress_bar
from hacrl.recipe import parse_recipe
from hacrl.tasks import Task
from hacrl.training.async_loop import steps_until_barrier
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team, build_team

LARGE = Workload(SIZES["M"], eos_hazard=0.02, max_new=512, prompts=2, samples=4)
"""The longest answer decides how long an agent draws. Of a few that end at random it is now long, now short;
of the 128 of other measurements it always reaches the limit, and nobody would be late in turns."""
SMALL = replace(LARGE, size=replace(SIZES["S"], vocab=LARGE.size.vocab))
"""Words that both know."""
STEPS = 8
"""From one meeting to the next."""
Stretch = Sequence[StepRecord]
"""The steps from one meeting to the next."""


@dataclass(frozen=True)
class Waiting:
    """The same steps of a team both ways, in turns; all ratios are within a round."""

    synchronous: Spread
    """Steps per hour."""
    asynchronous: Spread
    gain: Spread
    """How many times as fast it is without waiting."""
    bound: Spread
    """What that could be at most, from the times each agent draws and learns in synchronous steps."""


@dataclass(frozen=True)
class Teams:
    """Two large agents, of which now this one, now that one is slow; and a small and a large one."""

    equal: Waiting
    unequal: Waiting


def measure_waiting(progress: Callable[[str], None], rounds: int = 5) -> Teams:
    """Every round has eight steps with waiting and the same ones without."""
    return Teams(_measure((LARGE, LARGE), rounds, progress), _measure((SMALL, LARGE), rounds, progress))


def _measure(works: Sequence[Workload], rounds: int, progress: Callable[[str], None]) -> Waiting:
    """Who comes first changes from round to round, so that a drift of the machine cancels."""
    with tempfile.TemporaryDirectory() as folder:
        team = _team(Path(folder), works)
        try:
            progress("a new team: warming up")
            train_step(team, 1)
            waited: list[Stretch] = []
            free: list[Stretch] = []
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
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
        gain=with_interval([_seconds(before) / _seconds(after) for before, after in pairs]),
        bound=with_interval([_bound(stretch, agents) for stretch in waited]),
    )


def with_interval(values: Sequence[float]) -> Spread:
    """The median and its 95% interval by the sign test, for any distribution; below 6 values the range."""
    ordered, cut, tail = sorted(values), 0, 0.5 ** len(values)
    while tail <= 0.025:
        cut += 1
        tail += comb(len(values), cut) * 0.5 ** len(values)
    outermost = max(cut, 1)
    return Spread(median(ordered), ordered[outermost - 1], ordered[-outermost])


def _seconds(stretch: Stretch) -> float:
    return sum(record.elapsed for record in stretch)


def _bound(stretch: Stretch, agents: Sequence[str]) -> float:
    """In every phase the slowest agent is waited for; nobody can be faster than the agent with most to do."""
    phases = [
        [record.seconds[f"{phase}/{agent}"] for agent in agents]
        for record in stretch
        for phase in ("sample", "update")
    ]
    return sum(map(max, phases)) / max(map(sum, zip(*phases, strict=True)))


def waiting_tables(found: Teams) -> list[Table]:
    """Both ways side by side."""
    rows = [
        (
            name,
            f"{waiting.synchronous.median:,.0f}",
            f"{waiting.asynchronous.median:,.0f}",
            *(
                f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
                for ratio in (waiting.gain, waiting.bound)
            ),
        )
        for name, waiting in (("two large agents", found.equal), ("a small and a large one", found.unequal))
    ]
    header = ("", "steps per hour, waiting", "not waiting", "gain", "gain at most")
    title = f"Agents on Ray, answers of very different lengths, meeting every {STEPS} steps"
    return [Table(title, header, rows)]


def _team(folder: Path, works: Sequence[Workload]) -> Team:
    models = [_save_agent(folder / str(seed), replace(work, seed=seed)) for seed, work in enumerate(works)]
    recipe = parse_recipe(
        {
            "agents": [{"name": name, "model": str(path)} for name, path in zip("ab", models, strict=True)],
            "task": "words",
            "method": {"name": "hacpo", "delta": 0.8},
            "steps": 1_000_000,
            "prompts_per_step": LARGE.prompts,
            "samples_per_prompt": LARGE.samples,
            "sampling": {"max_new_tokens": LARGE.max_new},
            "optimiser": {"learning_rate": LARGE.learning_rate, "kl": 0.0},
            "checkpoint": {"every": STEPS},
            "exchange": {"asynchronous": {"max_staleness": 2}},
            "runtime": "ray",
        }
    )
    prompts = make_prompts(LARGE)
    return build_team(recipe, task=Task("words", prompts, prompts[:1], "exact"), reward_funcs=[_rewards])


def _rewards(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    return [reward(ids) for ids in completion_ids]


def _save_agent(directory: Path, work: Workload) -> Path:
    with no_progress_bar():
        make_model(work).save_pretrained(directory)
    make_tokenizer(work.size).save_pretrained(directory)
    return directory
