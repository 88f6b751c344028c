"""Gain and overhead of one process per agent: the same steps with both runtimes, alternating."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.timing import Spread
from benchmarks.workload import SIZES, Workload
from hacrl.analysis.simulate.synthetic import rewards
from hacrl.analysis.tables import TextTable
from hacrl.recipe import parse_recipe
from hacrl.tasks import Task
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team
from hacrl.training.team_setup import build_team

WORK = Workload(SIZES["M"], eos_hazard=0.0)
"""Responses of full length, so that all steps and agents have the same work."""
RUNTIMES = ("local", "ray")


@dataclass(frozen=True)
class Pace:
    """Steps per hour of both runtimes, and the ratio of Ray's to the local one's within each round."""

    agents: int
    local: Spread
    ray: Spread
    gain: Spread
    bytes_per_drawn_token: float
    bytes_per_trained_token: float


@dataclass(frozen=True)
class Paces:
    """One agent alone, where Ray is only overhead; and two, which can work at the same time."""

    alone: Pace
    together: Pace


def runtimes(repeats: Repeats = 5, markdown: Markdown = False, json_file: JsonFile = None) -> None:
    """Count the steps per hour with all agents in one process and with one process per agent on a local Ray.

    First one agent of size M, for which Ray is only overhead; then two, which Ray lets work at the same time.
    Fails if the weights differ afterwards. Takes a few minutes.
    """
    paces = measure_runtimes(repeats)
    show([runtime_table(paces)], paces, markdown, json_file)


def measure_runtimes(repeats: int) -> Paces:
    """Agents of size M, 16 prompts x 8 samples, 32 new tokens."""
    with tempfile.TemporaryDirectory() as folder:
        agents = [replace(WORK, seed=seed).save_agent(Path(folder) / f"agent-{seed}") for seed in range(2)]
        return Paces(*(_pace(agents[:count], repeats) for count in (1, 2)))


def _pace(agents: Sequence[Path], repeats: int) -> Pace:
    with ExitStack() as closing:
        teams = {}
        for runtime in RUNTIMES:
            progress(f"{len(agents)} agents, {runtime}: loading")
            teams[runtime] = make_team(WORK, agents, runtime=runtime)
            closing.callback(teams[runtime].close)
        rounds = list(_rounds(teams, repeats))
        _check_equal(teams)
    hours = {runtime: [3600 / records[runtime].elapsed for records in rounds] for runtime in RUNTIMES}
    record = rounds[-1]["ray"]
    moved = next(iter(record.traffic.values()))
    drawn = len(record.trajectories) * WORK.max_new // len(agents)
    return Pace(
        agents=len(agents),
        local=Spread.of(hours["local"]),
        ray=Spread.of(hours["ray"]),
        gain=Spread.of([ray / local for ray, local in zip(hours["ray"], hours["local"], strict=True)]),
        bytes_per_drawn_token=moved.rollouts / drawn,
        bytes_per_trained_token=moved.rows / (drawn * len(agents)),
    )


def _rounds(teams: Mapping[str, Team], repeats: int) -> Iterator[dict[str, StepRecord]]:
    """The same step with both runtimes; the order alternates, so that a drift of the machine cancels out."""
    order = list(teams)
    for step in range(1, repeats + 2):
        progress(f"{len(next(iter(teams.values())).members)} agents: round {step - 1} of {repeats}")
        records = {runtime: train_step(teams[runtime], step) for runtime in order}
        order.reverse()
        if step > 1:  # the first warms up
            yield records


def _check_equal(teams: dict[str, Team]) -> None:
    local, ray = ([member.policy.fingerprint() for member in team.members] for team in teams.values())
    if local != ray:
        raise RuntimeError(f"the runtimes do not compute the same: weights {local} and {ray}")


def runtime_table(paces: Paces) -> TextTable:
    """Steps per hour side by side, and what was moved."""
    rows = [
        (
            f"{pace.agents} agent{'s' if pace.agents > 1 else ''}",
            f"{pace.local.median:,.0f}",
            f"{pace.ray.median:,.0f}",
            f"{pace.gain:.2f}",
            f"{1 / pace.gain.median - 1:+.1%}" if pace.agents == 1 else "",
            f"{pace.bytes_per_drawn_token:.1f}",
            f"{pace.bytes_per_trained_token:.1f}",
        )
        for pace in (paces.alone, paces.together)
    ]
    header = (
        "",
        "local",
        "ray",
        "ray / local",
        "overhead",
        "bytes per drawn token",
        "bytes per trained token",
    )
    title = (
        "Steps per hour, agents of size M, 16 prompts x 8 samples, 32 new tokens; equal weights afterwards"
    )
    return TextTable(title, header, rows)


def make_team(work: Workload, agents: Sequence[Path], **keys: Any) -> Team:
    """Saved agents ready to train together with HACPO; `keys` are further keys of the recipe."""
    recipe = parse_recipe(
        {
            "agents": [{"name": path.name, "model": str(path)} for path in agents],
            "task": "words",
            "method": {"name": "hacpo", "delta": 0.8},
            "prompts_per_step": work.prompts,
            "samples_per_prompt": work.samples,
            "sampling": {"max_new_tokens": work.max_new},
            "optimiser": {"learning_rate": work.learning_rate, "kl": 0.0},
            **keys,
        }
    )
    prompts = work.make_prompts()
    return build_team(recipe, task=Task("words", prompts, prompts[:1], "exact"), reward_funcs=[rewards])


app = command(runtimes)

if __name__ == "__main__":
    app()
