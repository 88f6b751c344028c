"""Whether two trainers in two processes learn as much through a pool as two agents in one run."""

from __future__ import annotations

import math
import os
import secrets
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from hacrl.analysis.tables import TextTable
from hacrl.recipe import load_recipe
from hacrl.training.trainer import train

DEMO = Path(__file__).parents[1] / "src/hacrl/cli/demo.yaml"
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% quantiles of Student's t, from one degree of freedom on."""
AGENTS = {"sorter": "toy:complementary-a", "adder": "toy:complementary-b"}


@dataclass(frozen=True)
class Learning:
    """Accuracies (mean@4 over test problems), one for every seed."""

    ways: dict[str, dict[str, list[float]]]
    """By way and agent."""


def pool_learning(
    seeds: Annotated[int, typer.Option(min=2, max=10, help="Runs of every way.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 30,
    url: Annotated[
        str | None, typer.Option(show_default="new directories", help="The pools' URL; `-SEED` is added.")
    ] = None,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Train the demo's two agents with GSPO alone, with commons in one run, and apart with a pool.

    The intervals are those of the mean over seeds (95%, Student's t).
    """
    os.environ.setdefault("HACRL_POOL_KEY", secrets.token_hex())
    ways: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2, get_context("spawn")) as two:
        for seed in range(seeds):
            progress(f"seed {seed}")
            place = f"{url}-{seed}" if url else f"{folder}/pool-{seed}"
            pool: dict[str, Any] = {"url": place, "wait_for": 1}
            jobs = {
                "alone": _apart(seed, steps, "gspo", None),
                "one run": [_settings(AGENTS, seed, steps, "commons", None)],
                "pool": _apart(seed, steps, "commons", pool),
            }
            for way, settings in jobs.items():
                outs = [f"{folder}/{way}-{seed}-{number}" for number in range(len(settings))]
                for found in two.map(accuracies, settings, outs):
                    for agent, accuracy in found.items():
                        ways.setdefault(way, {}).setdefault(agent, []).append(accuracy)
    show([learning_table(Learning(ways))], Learning(ways), markdown, json_file)


def _apart(seed: int, steps: int, method: str, pool: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """A run for every agent, each with prompts of its own."""
    return [
        _settings({name: model}, 100 * number + seed, steps, method, pool)
        for number, (name, model) in enumerate(AGENTS.items())
    ]


def _settings(
    agents: Mapping[str, str], seed: int, steps: int, method: str, pool: Mapping[str, Any] | None
) -> dict[str, Any]:
    demo = load_recipe(DEMO).model_dump(mode="json", exclude_unset=True)
    return demo | {
        "agents": [{"name": name, "model": model} for name, model in agents.items()],
        "method": method,
        "seed": seed,
        "steps": steps,
        "exchange": {"pool": pool},
        "evaluation": {"prompts": 300, "samples": 4, "before": False},
        "logging": {"trajectories": False},
    }


def accuracies(settings: Mapping[str, Any], out: str) -> dict[str, float]:
    """Train, and return every agent's accuracy."""
    summary = train(settings, out)
    return {name: agent["after"]["digits"]["mean_at_k"]["mean"] for name, agent in summary["agents"].items()}


def learning_table(found: Learning) -> TextTable:
    """Every agent's mean over seeds with its interval."""
    rows = []
    for agent in AGENTS:
        cells = [_interval(found.ways[way][agent]) for way in found.ways]
        rows.append((agent, *cells))
    seeds = len(next(iter(found.ways["alone"].values())))
    return TextTable(f"Accuracy (mean@4) over {seeds} seeds", ("agent", *found.ways), rows)


def _interval(values: list[float]) -> str:
    half = STUDENT[len(values) - 2] * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):.3f} [{fmean(values) - half:.3f}, {fmean(values) + half:.3f}]"


app = command(pool_learning)

if __name__ == "__main__":
    app()
