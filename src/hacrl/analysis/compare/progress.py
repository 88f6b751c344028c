"""How far a comparison is: one bar with the time left on a terminal, a line per run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from hacrl.analysis.compare.plan import PlannedRun


class Progress:
    """Counts the work of all runs. The time left supposes that the rest goes as fast as this call so far."""

    def __init__(self, runs: Sequence[PlannedRun], console: Console | None = None) -> None:
        finished = [run for run in runs if run.finished]
        self._console = console or Console(stderr=True)
        self._began = time.monotonic()
        self._runs, self._ended = len(runs), len(finished)
        self._work = {run.name: run.work_per_step for run in runs}
        self._total = sum(run.recipe.steps * run.work_per_step for run in runs)
        self._done = sum(run.recipe.steps * run.work_per_step for run in finished)
        self._at_start: int | None = None
        self._left = ""
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=self._total, completed=self._done, left="")
        if finished:
            self._print(f"{self._ended} of {self._runs} runs are finished already")
        self._bar.start()

    def running(self, steps: Mapping[str, int]) -> None:
        """Show how many steps the current runs have done."""
        done = self._done + sum(count * self._work[name] for name, count in steps.items())
        if self._at_start is None:
            self._at_start = done  # what resumed runs did before does not count as speed either
        self._left = _left(time.monotonic() - self._began, done - self._at_start, self._total - done)
        doing = ", ".join(steps) or "waiting for a free CPU"
        description = f"{self._ended}/{self._runs} runs  {doing}"
        self._bar.update(self._task, description=description, completed=done, left=self._left)

    def ended(self, run: PlannedRun, failure: str | None) -> None:
        """Tell of a finished or failed run."""
        self._ended += 1
        self._done += run.recipe.steps * run.work_per_step
        if failure:
            self._print(f"[{self._ended}/{self._runs}] {run.name} failed: {failure}")
        else:
            self._print(f"[{self._ended}/{self._runs}] {run.name} finished  {self._left}")

    def close(self) -> None:
        """Leave the last picture on the screen."""
        self._bar.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _left(seconds: float, done: int, remaining: int) -> str:
    if done <= 0:
        return ""
    left = round(seconds * remaining / done)
    return f"about {left // 60} min {left % 60} s left" if left >= 60 else f"about {left} s left"
