"""Training steps of several real models together: `python -m benchmarks.real`."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.memory import peak_megabytes
from benchmarks.real_models import MICRO_BATCH_TOKENS, RealModel
from benchmarks.real_prompts import word_problems
from benchmarks.stopwatch import CAPABILITY, PHASES, Stopwatch
from hacrl.analysis.simulate.synthetic import rewards
from hacrl.analysis.tables import TextTable
from hacrl.runs.reader import RunReader
from hacrl.training.trainer import train

PROMPTS, SAMPLES = 16, 8
"""Of a step."""


@dataclass(frozen=True)
class RealSteps:
    """Seconds of every measured step, and the memory that training took."""

    models: list[str]
    dtypes: list[str]
    method: str
    max_new: int
    threads: int
    steps: list[float]
    median: float
    phases: dict[str, float]
    capability: float
    """Of contextual capability, part of `exchange`; 0 if the method does not need it."""
    peak_megabytes: float


def real(
    model: Annotated[
        list[Path], typer.Option(help="Directory of a model, once for each agent; `make models` makes two.")
    ],
    steps: Annotated[int, typer.Option(min=2, help="The first is not measured.")] = 6,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 24,
    method: Annotated[str, typer.Option(help="How they learn.")] = "hacpo",
    threads: Annotated[int, typer.Option(min=1, help="Of torch.")] = 2,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Train real models together as `hacrl train` does, and time the steps: 16 prompts x 8 responses.

    Half of the responses get a reward whatever they say, so that every one of them is trained on.
    """
    found = measure_real(model, steps, max_new, method, threads)
    show([_table(found)], found, markdown, json_file)


def measure_real(models: Sequence[Path], steps: int, max_new: int, method: str, threads: int) -> RealSteps:
    """All agents in this process, each computing in the dtype that `dtype: auto` chooses."""
    torch.set_num_threads(threads)
    chosen = [RealModel.at_its_best(model) for model in models]
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        progress(f"{steps} steps of {len(chosen)} agents")
        recipe = recipe_of(chosen, Path(folder), steps, max_new, method)
        train(recipe, Path(folder, "run"), reward_funcs=[rewards], display=stopwatch)
        dtypes = RunReader(Path(folder, "run")).dtypes
    return RealSteps(
        models=[model.name for model in chosen],
        dtypes=[dtypes[name] for name in sorted(dtypes)],
        method=method,
        max_new=max_new,
        threads=threads,
        steps=stopwatch.steps,
        median=statistics.median(stopwatch.steps),
        phases={phase: statistics.median(stopwatch.phases[phase]) for phase in PHASES},
        capability=statistics.median(stopwatch.phases[CAPABILITY]),
        peak_megabytes=peak_megabytes(),
    )


def _row(prompt: Any) -> str:
    return json.dumps({"prompt": prompt.text, "answer": prompt.columns["answer"]}) + "\n"


def recipe_of(
    models: Sequence[RealModel], folder: Path, steps: int, max_new: int, method: str
) -> dict[str, Any]:
    """Of keys that every version of hacrl knows; its problems are written to the folder."""
    task = folder / "problems.jsonl"
    task.write_text("".join(map(_row, word_problems(400, examples=0))))
    return {
        "agents": [
            {"name": f"{number}-{model.name}", "model": model.directory}
            for number, model in enumerate(models)
        ],
        "task": str(task),
        "method": method,
        "steps": steps,
        "prompts_per_step": PROMPTS,
        "samples_per_prompt": SAMPLES,
        "sampling": {"max_new_tokens": max_new},
        "optimiser": {"kl": 0.0},
        "updates": {"tokens_per_micro_batch": MICRO_BATCH_TOKENS},
        "evaluation": {"before": False, "prompts": 1},
        "checkpoint": {"every": steps},
    }


def _table(found: RealSteps) -> TextTable:
    agents = ", ".join(f"{model} in {dtype}" for model, dtype in zip(found.models, found.dtypes, strict=True))
    title = (
        f"{agents}, {found.method}: {PROMPTS} prompts x {SAMPLES} responses of at most {found.max_new} "
        f"tokens, {found.threads} threads"
    )
    rows = [(f"seconds of {phase}, median", f"{seconds:.2f}") for phase, seconds in found.phases.items()]
    if found.capability:
        of_step = f"{found.capability:.2f} ({found.capability / found.median:.1%} of a step)"
        rows.append(("contextual capability, part of exchange, median", of_step))
    whole = f"{found.median:.2f} ({min(found.steps):.2f} to {max(found.steps):.2f})"
    rows += [
        ("seconds of a whole step, median (range)", whole),
        ("peak memory, MB", f"{found.peak_megabytes:.0f}"),
    ]
    return TextTable(title, ("", "found"), rows)


app = command(real)

if __name__ == "__main__":
    app()
