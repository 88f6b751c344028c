"""Executes the runs of comparisons in parallel and shows their progress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from hacrl.analysis.compare.plan import PlannedRun
from hacrl.analysis.compare.workers import Worker, WorkerPool
from hacrl.runs.files import make_directory
from hacrl.training.process import stop_requests

POLL_SECONDS = 0.2
LOG_LINES_SHOWN = 5


class Interrupted(Exception):
    """The comparison was asked to stop; its runs have saved their state and ended."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"interrupted by signal {signal}")
        self.signal = signal


class RunsFailed(Exception):
    """Some runs ended without a result; the message says which and why."""


def run_all(
    runs: Sequence[PlannedRun], pool: WorkerPool, keep: Callable[[PlannedRun], None] = lambda run: None
) -> None:
    """Start or resume every unfinished run; each is handed to `keep` as soon as it has finished.

    A run that fails does not end the others; `RunsFailed` is raised when all have ended. Raises `Interrupted`
    after Ctrl-C or SIGTERM.
    """
    waiting = deque(run for run in runs if not run.finished)
    for folder in {run.log.parent for run in runs}:
        make_directory(folder)
    failures: dict[str, str] = {}
    with ExitStack() as closing:
        workers = closing.enter_context(pool.workers(len(waiting)))
        progress = ProgressDisplay(runs)
        closing.callback(progress.close)
        stop = closing.enter_context(stop_requests())
        counters: dict[str, StepCounter] = {}
        while waiting or any(worker.run for worker in workers):
            for worker in workers:
                if waiting and worker.idle:
                    run = waiting.popleft()
                    counters[run.name] = StepCounter(run)
                    worker.begin(run)
            progress.running({w.run.name: counters[w.run.name].steps() for w in workers if w.run})
            time.sleep(POLL_SECONDS)
            for worker in workers:
                _collect(worker, progress, failures, keep)
            if stop.signal is not None:
                _stop(workers)
                raise Interrupted(stop.signal)
    _raise_failures(failures, len(runs))


def _raise_failures(failures: Mapping[str, str], runs: int) -> None:
    if failures:
        reasons = "\n".join(f"  {name} {reason}" for name, reason in failures.items())
        raise RunsFailed(
            f"{len(failures)} of {runs} runs failed, and results need all of them. Fix the cause and run "
            f"the command again: every run continues where it stopped.\n{reasons}"
        )


def _collect(
    worker: Worker,
    progress: ProgressDisplay,
    failures: dict[str, str],
    keep: Callable[[PlannedRun], None],
) -> None:
    """Record a run that has ended."""
    run, how = worker.run, worker.ended()
    if run is None or how is None:
        return
    failure = None if run.finished else _failure(run, how)
    if failure:
        failures[run.name] = failure
    else:
        keep(run)
    progress.ended(run, failure)


def _failure(run: PlannedRun, how: str) -> str:
    """Why a process has ended without finishing its run."""
    if not run.log.exists():
        return f"ended {how}; {run.log} does not exist: on a cluster all machines need a shared file system"
    text = run.log.read_text(errors="replace")
    shown = "".join(f"\n    {line}" for line in text.splitlines()[-LOG_LINES_SHOWN:])
    return f"ended {how}; the end of {run.log}:{shown}"


def _stop(workers: Sequence[Worker]) -> None:
    """Let every run finish its step and save."""
    for worker in workers:
        worker.ask_to_stop()
    while any(worker.run and worker.ended() is None for worker in workers):
        time.sleep(POLL_SECONDS)


class StepCounter:
    """Counts the steps of a run in another process by the new lines of its metrics file."""

    def __init__(self, run: PlannedRun) -> None:
        self._run = run
        self._offset = self._lines = 0

    def steps(self) -> int:
        """Finished steps."""
        path = self._run.directory.metrics
        if not path.exists():
            return 0
        with path.open("rb") as file:
            if path.stat().st_size < self._offset:  # a resume has truncated the file to its checkpoint
                self._offset = self._lines = 0
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        self._lines += new.count(b"\n")
        return max(0, self._lines - self._run.recipe.evaluation.before)


class ProgressDisplay:
    """One bar with the time left on a terminal, a line per run elsewhere.

    The time left assumes the speed of this call so far.
    """

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
            TextColumn("{task.description}", markup=False),
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
            self._at_start = done  # steps that resumed runs did earlier do not count towards the speed
        self._left = _left(time.monotonic() - self._began, done - self._at_start, self._total - done)
        doing = ", ".join(steps) or "waiting for a free CPU"
        description = f"{self._ended}/{self._runs} runs  {doing}"
        self._bar.update(self._task, description=description, completed=done, left=self._left)

    def ended(self, run: PlannedRun, failure: str | None) -> None:
        """Report a finished or failed run."""
        self._ended += 1
        self._done += run.recipe.steps * run.work_per_step
        if failure:
            self._print(f"[{self._ended}/{self._runs}] {run.name} failed: {failure}")
        else:
            self._print(f"[{self._ended}/{self._runs}] {run.name} finished  {self._left}")

    def close(self) -> None:
        """Stop updating; the last state stays on the screen."""
        self._bar.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _left(seconds: float, done: int, remaining: int) -> str:
    if done <= 0:
        return ""
    left = round(seconds * remaining / done)
    return f"about {left // 60} min {left % 60} s left" if left >= 60 else f"about {left} s left"
