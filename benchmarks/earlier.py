"""A training step of a real model, here and at an earlier commit: `python -m benchmarks.earlier COMMIT`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import earlier_worker
from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.real import PROMPTS, SAMPLES, recipe_of
from benchmarks.real_models import RealModel
from benchmarks.worker import ROOT
from hacrl.analysis.tables import TextTable


@dataclass(frozen=True)
class Earlier:
    """Seconds of every measured step on both sides."""

    model: str
    commit: str
    threads: int
    before: list[float]
    now: list[float]

    @property
    def ratio(self) -> float:
        """How many times as long a step took, by medians."""
        return statistics.median(self.before) / statistics.median(self.now)


def earlier(
    commit: Annotated[str, typer.Argument(help="Of this repository.")],
    model: Annotated[Path, typer.Option(help="Directory of the model; `make models` makes two.")],
    steps: Annotated[int, typer.Option(min=2, help="The first is not measured.")] = 3,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 24,
    threads: Annotated[int, typer.Option(min=1, help="Of torch.")] = 1,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Train one agent alone with GSPO, as it was at a commit and as it is now: 16 prompts x 8 responses.

    Each side computes in the dtype that it chooses itself, with the packages that are installed now.
    """
    found = measure_earlier(commit, model, steps, max_new, threads)
    rows = [
        (side, f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})")
        for side, seconds in ((f"at {commit}", found.before), ("now", found.now))
    ]
    rows.append(("times as fast", f"{found.ratio:.2f}"))
    work = f"{PROMPTS} prompts x {SAMPLES} responses of at most {max_new} tokens"
    title = f"{found.model}: seconds of a step, {work}"
    show([TextTable(title, ("", "median (range)"), rows)], found, markdown, json_file)


def measure_earlier(commit: str, model: Path, steps: int, max_new: int, threads: int) -> Earlier:
    """Both sides one after the other, each in a process of its own."""
    found = RealModel.at_its_best(model)
    with _as_it_was(commit) as tree:
        progress(f"{steps} steps at {commit}")
        before = _steps(tree / "src", found, steps, max_new, threads)
    progress(f"{steps} steps now")
    now = _steps(ROOT / "src", found, steps, max_new, threads)
    return Earlier(found.name, commit, threads, before[1:], now[1:])


@contextmanager
def _as_it_was(commit: str) -> Iterator[Path]:
    """The files of a commit, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)  # noqa: S603, S607
    if done.returncode:
        raise ValueError(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def _steps(source: Path, model: RealModel, steps: int, max_new: int, threads: int) -> list[float]:
    """Train with the package in this directory."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = recipe_of([model], Path(folder), steps, max_new, "gspo")
        Path(folder, "recipe.json").write_text(json.dumps(recipe))
        done = subprocess.run(  # noqa: S603 (our own file)
            [sys.executable, "-P", earlier_worker.__file__, folder, str(threads)],
            env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"training with {source} failed:\n{done.stderr[-2000:]}")
        answer = json.loads(done.stdout.splitlines()[-1])
    if not Path(answer["package"]).is_relative_to(source):
        raise RuntimeError(f"{answer['package']} was imported, not the package in {source}")
    return [float(seconds) for seconds in answer["steps"]]


app = command(earlier)

if __name__ == "__main__":
    app()
