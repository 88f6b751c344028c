"""A worker as the comparison sees it: a process that takes one run after another."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Protocol

from hacrl.analysis.compare.plan import PlannedRun


class Worker(Protocol):
    """Carries out one run after another, each in a process of its own."""

    run: PlannedRun | None
    """What it is doing; None: nothing."""

    @property
    def idle(self) -> bool:
        """It can begin a run now."""

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""

    def ended(self) -> str | None:
        """How the run's process ended, which leaves the worker without a run; None while it goes on."""

    def ask_to_stop(self) -> None:
        """Let its run, if any, finish its step and save."""

    def close(self) -> None:
        """End it at once, and the run that it still has."""


class LocalWorker:
    """Gives runs to `hacrl.analysis.compare.worker` on this machine; a worker that died is started anew."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.run: PlannedRun | None = None
        self._environment = environment
        self._process = self._start()
        self._pid: int | None = None

    @property
    def idle(self) -> bool:
        """It has no run."""
        return self.run is None

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""
        if self._process.poll() is not None:
            self._process = self._start()
        self.run, self._pid = run, None
        job = {
            "recipe": run.recipe.resolved(),
            "out": str(run.directory.path),
            "resume": run.begun,
            "log": str(run.log),
        }
        with suppress(BrokenPipeError):  # it died just now: `ended` will tell
            self._jobs.write(json.dumps(job).encode() + b"\n")

    def ended(self) -> str | None:
        """The exit code once the run is over; None while it goes on."""
        while self.run and select.select([self._answers], [], [], 0)[0]:
            answer = self._answers.readline()
            if not answer:  # the worker is dead, and its run ends when the jobs are closed
                self.close()
                self.run = None
                return f"with code {self._process.returncode}"
            if self._pid is not None:
                self.run = None
                return f"with code {int(answer)}"
            self._pid = int(answer)
        return None

    def ask_to_stop(self) -> None:
        """Let its run, if any, finish its step and save."""
        if self.run and self._pid is None:  # still importing: the run begins in a moment
            self._pid = int(self._answers.readline() or 0)
        if self.run and self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)

    def close(self) -> None:
        """End it at once; a run that it still has kills itself."""
        self._jobs.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()

    @property
    def _jobs(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "hacrl.analysis.compare.worker"],
            bufsize=0,  # `select` sees only what no buffer has taken
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**self._environment, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,  # Ctrl-C reaches the comparison alone, which tells its runs once
        )
