"""Carries out a plan: unfinished runs side by side in processes of their own, each on one core."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from hacrl.experiments.plan import Plan, PlannedRun
from hacrl.experiments.progress import Progress
from hacrl.storage.files import make_directory
from hacrl.training.signals import stop_requests

POLL_SECONDS = 0.2
LOG_LINES_SHOWN = 5


class Interrupted(Exception):
    """The comparison was asked to stop; its runs have saved and ended."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"interrupted by signal {signal}")
        self.signal = signal


def carry_out(plan: Plan, jobs: int) -> dict[str, str]:
    """Begin or resume every unfinished run, at most `jobs` at once; returns what failed, with the reasons.

    A run that fails does not end the others. Raises `Interrupted` after Ctrl-C or SIGTERM.
    """
    waiting = deque(run for run in plan.runs() if not run.finished)
    make_directory(plan.out / "logs")
    children: list[Child] = []
    failures: dict[str, str] = {}
    progress = Progress(plan)
    try:
        with stop_requests() as stop:
            while waiting or children:
                while waiting and len(children) < jobs:
                    children.append(Child(waiting.popleft(), plan.out / "logs"))
                progress.running({child.run.name: child.steps() for child in children})
                time.sleep(POLL_SECONDS)
                for child in [child for child in children if child.ended]:
                    child.wait()
                    children.remove(child)
                    failure = child.failure()
                    if failure:
                        failures[child.run.name] = failure
                    progress.ended(child.run, failure)
                if stop.signal is not None:
                    _stop(children)
                    raise Interrupted(stop.signal)
    finally:
        for child in children:  # none are left but after an error
            child.kill()
        progress.close()
    return failures


def _stop(children: list[Child]) -> None:
    """Let every run finish its step and save."""
    for child in children:
        child.ask_to_stop()
    while children:
        children[-1].wait()
        children.pop()


class Child:
    """A process that carries out one run. Its output goes to a log of its own."""

    def __init__(self, run: PlannedRun, logs: Path) -> None:
        self.run = run
        self._log = logs / f"{run.method}-seed_{run.seed}.log"
        self._metrics = (0, 0)
        job = {"recipe": run.recipe.resolved(), "out": str(run.directory.path), "resume": run.begun}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hacrl.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
                start_new_session=True,  # Ctrl-C reaches the comparison alone, which tells its runs once
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def ended(self) -> bool:
        """Whether the process is over."""
        return self._process.poll() is not None

    def steps(self) -> int:
        """Finished steps, counted by the lines of metrics."""
        path = self.run.directory.metrics
        if not path.exists():
            return 0
        offset, lines = self._metrics
        with path.open("rb") as file:
            if path.stat().st_size < offset:  # a resume has cut off what it does again
                offset = lines = 0
            file.seek(offset)
            new = file.read()
        self._metrics = offset + len(new), lines + new.count(b"\n")
        return max(0, self._metrics[1] - self.run.recipe.evaluation.before)

    def failure(self) -> str | None:
        """Why an ended process has not finished its run."""
        if self.run.finished:
            return None
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        text = "".join(f"\n    {line}" for line in lines)
        return f"ended with code {self._process.returncode}; the end of {self._log}:{text}"

    def ask_to_stop(self) -> None:
        """Let it finish its step and save."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Until it has ended."""
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.wait()
