"""Carries out runs side by side, each in a process of its own on one core."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from hacrl.experiments.plan import PlannedRun
from hacrl.experiments.progress import Progress
from hacrl.experiments.workers import Worker
from hacrl.storage.files import make_directory
from hacrl.training.signals import stop_requests

POLL_SECONDS = 0.2
LOG_LINES_SHOWN = 5


class Interrupted(Exception):
    """The comparison was asked to stop; its runs have saved and ended."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"interrupted by signal {signal}")
        self.signal = signal


def carry_out(runs: Sequence[PlannedRun], jobs: int) -> dict[str, str]:
    """Begin or resume every unfinished run, at most `jobs` at once; returns what failed, with the reasons.

    A run that fails does not end the others. Raises `Interrupted` after Ctrl-C or SIGTERM.
    """
    waiting = deque(run for run in runs if not run.finished)
    for folder in {run.log.parent for run in runs}:
        make_directory(folder)
    workers = [Worker() for _ in range(min(jobs, len(waiting)))]
    failures: dict[str, str] = {}
    progress = Progress(runs)
    try:
        with stop_requests() as stop:
            while waiting or any(worker.run for worker in workers):
                for worker in workers:
                    if waiting and worker.run is None:
                        worker.begin(waiting.popleft())
                progress.running({w.run.name: w.steps() for w in workers if w.run})
                time.sleep(POLL_SECONDS)
                for worker in workers:
                    _collect(worker, progress, failures)
                if stop.signal is not None:
                    _stop(workers)
                    raise Interrupted(stop.signal)
    finally:
        for worker in workers:
            worker.close()
        progress.close()
    return failures


def _collect(worker: Worker, progress: Progress, failures: dict[str, str]) -> None:
    """Take note of a run that has ended."""
    run, code = worker.run, worker.ended()
    if run is None or code is None:
        return
    failure = None if run.finished else _failure(run, code)
    if failure:
        failures[run.name] = failure
    progress.ended(run, failure)


def _failure(run: PlannedRun, code: int) -> str:
    """Why a process has ended without finishing its run."""
    text = run.log.read_text(errors="replace") if run.log.exists() else ""
    shown = "".join(f"\n    {line}" for line in text.splitlines()[-LOG_LINES_SHOWN:])
    return f"ended with code {code}; the end of {run.log}:{shown}"


def _stop(workers: Sequence[Worker]) -> None:
    """Let every run finish its step and save."""
    for worker in workers:
        worker.ask_to_stop()
    while any(worker.run and worker.ended() is None for worker in workers):
        time.sleep(POLL_SECONDS)
