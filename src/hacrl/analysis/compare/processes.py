"""Carries out runs side by side, each in a process of its own on one core."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack

from hacrl.analysis.compare.places import Place
from hacrl.analysis.compare.plan import PlannedRun
from hacrl.analysis.compare.progress import Progress
from hacrl.analysis.compare.steps import StepCounter
from hacrl.analysis.compare.workers import Worker
from hacrl.runs.files import make_directory
from hacrl.training.process import stop_requests

POLL_SECONDS = 0.2
LOG_LINES_SHOWN = 5


class Interrupted(Exception):
    """The comparison was asked to stop; its runs have saved and ended."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"interrupted by signal {signal}")
        self.signal = signal


def carry_out(runs: Sequence[PlannedRun], place: Place) -> dict[str, str]:
    """Begin or resume every unfinished run; returns what failed, with the reasons.

    A run that fails does not end the others. Raises `Interrupted` after Ctrl-C or SIGTERM.
    """
    waiting = deque(run for run in runs if not run.finished)
    for folder in {run.log.parent for run in runs}:
        make_directory(folder)
    failures: dict[str, str] = {}
    with ExitStack() as closing:
        workers = closing.enter_context(place.workers(len(waiting)))
        progress = Progress(runs)
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
                _collect(worker, progress, failures)
            if stop.signal is not None:
                _stop(workers)
                raise Interrupted(stop.signal)
    return failures


def _collect(worker: Worker, progress: Progress, failures: dict[str, str]) -> None:
    """Take note of a run that has ended."""
    run, how = worker.run, worker.ended()
    if run is None or how is None:
        return
    failure = None if run.finished else _failure(run, how)
    if failure:
        failures[run.name] = failure
    progress.ended(run, failure)


def _failure(run: PlannedRun, how: str) -> str:
    """Why a process has ended without finishing its run."""
    if not run.log.exists():
        return f"ended {how}; {run.log} is not there: on a cluster all machines need the same files"
    text = run.log.read_text(errors="replace")
    shown = "".join(f"\n    {line}" for line in text.splitlines()[-LOG_LINES_SHOWN:])
    return f"ended {how}; the end of {run.log}:{shown}"


def _stop(workers: Sequence[Worker]) -> None:
    """Let every run finish its step and save."""
    for worker in workers:
        worker.ask_to_stop()
    while any(worker.run and worker.ended() is None for worker in workers):
        time.sleep(POLL_SECONDS)
