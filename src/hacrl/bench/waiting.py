"""What it brings two unequal agents on Ray not to wait for each other in every step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hacrl.agents.loading import no_progress_bar
from hacrl.bench.peer.result import Spread
from hacrl.bench.peer.workload import SIZES, Workload, make_model, make_prompts, make_tokenizer, reward
from hacrl.bench.tables import Table
from hacrl.config import parse_recipe
from hacrl.tasks import Task
from hacrl.training.asynchronous import steps_until_meeting
from hacrl.training.team import Team, build_team
from hacrl.training.train import StepRecord, train_step

LARGE = Workload(SIZES["M"])
"""Answers end at random: how long a step takes differs from step to step."""
SMALL = replace(LARGE, size=replace(SIZES["S"], vocab=LARGE.size.vocab), seed=1)
"""Words that both know."""
STEPS = 4
"""From one meeting to the next."""


@dataclass(frozen=True)
class Way:
    """One way to train: steps per hour, and the share of the time in which each agent samples or learns."""

    steps_per_hour: Spread
    busy: dict[str, Spread]


@dataclass(frozen=True)
class Waiting:
    """The same team both ways in turns, and the ratio of the steps per hour within each round."""

    synchronous: Way
    asynchronous: Way
    gain: Spread


def measure_waiting(progress: Callable[[str], None], rounds: int = 5) -> Waiting:
    """A small and a large agent; every round has four steps with waiting and four without."""
    with tempfile.TemporaryDirectory() as folder:
        team = _team(Path(folder))
        try:
            progress("warming up")
            train_step(team, 1)
            found: dict[str, list[list[StepRecord]]] = {"synchronous": [], "asynchronous": []}
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
                first = 1 + 2 * STEPS * number
                found["synchronous"].append([train_step(team, first + n) for n in range(STEPS)])
                found["asynchronous"].append(list(steps_until_meeting(team, first + STEPS)))
        finally:
            team.close()
    ways = {name: _way(stretches, team.names) for name, stretches in found.items()}
    pairs = zip(found["synchronous"], found["asynchronous"], strict=True)
    return Waiting(**ways, gain=Spread.of([_seconds(waited) / _seconds(free) for waited, free in pairs]))


def _way(stretches: Sequence[Sequence[StepRecord]], agents: Sequence[str]) -> Way:
    return Way(
        Spread.of([3600 * STEPS / _seconds(stretch) for stretch in stretches]),
        {agent: Spread.of([_busy(stretch, agent) for stretch in stretches]) for agent in agents},
    )


def _seconds(stretch: Sequence[StepRecord]) -> float:
    return sum(record.elapsed for record in stretch)


def _busy(stretch: Sequence[StepRecord], agent: str) -> float:
    phases = (f"sample/{agent}", f"update/{agent}")
    return sum(record.seconds[phase] for record in stretch for phase in phases) / _seconds(stretch)


def waiting_tables(found: Waiting) -> list[Table]:
    """Both ways side by side."""
    agents = list(found.synchronous.busy)
    rows = [
        (
            name,
            f"{way.steps_per_hour.median:,.0f}",
            f"{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})" if gain else "",
            *(f"{way.busy[agent].median:.0%}" for agent in agents),
        )
        for name, way, gain in (
            ("synchronous", found.synchronous, None),
            ("asynchronous", found.asynchronous, found.gain),
        )
    ]
    header = ("", "steps per hour", "gain", *(f"{agent} at work" for agent in agents))
    title = f"A small and a large agent on Ray, 16 prompts x 8 samples, meeting every {STEPS} steps"
    return [Table(title, header, rows)]


def _team(folder: Path) -> Team:
    agents = {name: _save_agent(folder / name, work) for name, work in (("small", SMALL), ("large", LARGE))}
    recipe = parse_recipe(
        {
            "agents": [{"name": name, "model": str(path)} for name, path in agents.items()],
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
