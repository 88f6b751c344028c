"""A worker as the comparison sees it: a process that takes one run after another."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO

from hacrl.experiments.plan import PlannedRun


class Worker:
    """Gives runs to `hacrl.experiments.worker`; a worker that died is started anew."""

    def __init__(self) -> None:
        self.run: PlannedRun | None = None
        """What it is doing; None: nothing."""
        self._process = _start()
        self._pid: int | None = None
        self._metrics = (0, 0)

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""
        if self._process.poll() is not None:
            self._process = _start()
        self.run, self._pid, self._metrics = run, None, (0, 0)
        job = {
            "recipe": run.recipe.resolved(),
            "out": str(run.directory.path),
            "resume": run.begun,
            "log": str(run.log),
        }
        with suppress(BrokenPipeError):  # it died just now: `ended` will tell
            self._jobs.write(json.dumps(job).encode() + b"\n")

    def ended(self) -> int | None:
        """The exit code once the run is over, which leaves the worker idle; None while it goes on."""
        while self.run and select.select([self._answers], [], [], 0)[0]:
            answer = self._answers.readline()
            if not answer:  # the worker is dead, and its run ends when the jobs are closed
                self.close()
                self.run = None
                return self._process.returncode
            if self._pid is not None:
                self.run = None
                return int(answer)
            self._pid = int(answer)
        return None

    def steps(self) -> int:
        """Finished steps of its run, counted by the lines of metrics."""
        assert self.run is not None
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


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "hacrl.experiments.worker"],
        bufsize=0,  # `select` sees only what no buffer has taken
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,  # Ctrl-C reaches the comparison alone, which tells its runs once
    )
