"""A pool of killable worker processes that all run one function."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hacrl.own_code import environment_for_own_code, importable
from hacrl.printable import printable
from hacrl.rewards.processes import PATIENCE, Limits, draw_user, kill_descendants
from hacrl.rewards.scores import Cause, Outcome
from hacrl.rewards.scratch import make_scratch, remove_scratch
from hacrl.rewards.worker import WorkerJob

START_SECONDS = 120.0
"""For loading the function: importing a large library on a busy machine takes long."""
MAX_REPLY = 16 * 2**20
OWNER_VARIABLE = "HACRL_WORKER_OF"
"""Set in the environment of every worker: the process id of its trainer."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""The trainer's environment variables that a confined worker sees: no tokens and no keys."""
_START = """
import sys
sys.path.insert(0, sys.argv[1])
import hacrl
del sys.path[0]
from hacrl.rewards.worker import WorkerJob, main
main(WorkerJob.from_json(sys.argv[2]))
"""
"""The worker's program; its arguments are the place of hacrl, the same as the trainer's, and the job. The
interpreter starts with the trainer's rights, so it is isolated (`-I`): it must run nothing that lies in a
home, temporary or working directory."""


class PoolError(ValueError):
    """A worker cannot be started: a problem of the set-up, not of one sample."""


class _Ended(Exception):
    """The worker process cannot be used any more."""

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.outcome = Outcome(None, cause, detail)


class Pool:
    """Runs calls of one function, given as `module:function`, in worker processes with limits."""

    def __init__(self, function: str, limits: Limits | None = None, workers: int = 2) -> None:
        self.function, self.limits = function, limits or Limits()
        self._workers = [VerifierProcess(function, self.limits) for _ in range(workers)]
        self._idle: queue.SimpleQueue[VerifierProcess] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="hacrl-pool")

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Call the function once per mapping of keyword arguments; outcomes are in the order of the calls."""
        return list(self._threads.map(self._run_one, calls))

    def isolation(self) -> dict[str, bool]:
        """What is isolated here: `processes`, `user`, and for confined workers `network` and `files`."""
        return self._workers[0].start()

    def close(self) -> None:
        """Kill all workers and everything they started."""
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_one(self, arguments: Mapping[str, Any]) -> Outcome:
        worker = self._idle.get()
        try:
            return worker.call(arguments)
        finally:
            self._idle.put(worker)


class VerifierProcess:
    """The trainer's side of one worker process: started on demand, replaced after it was killed."""

    def __init__(self, function: str, limits: Limits) -> None:
        self._function, self._limits = function, limits
        self._process: subprocess.Popen[bytes] | None = None
        self._isolation: dict[str, bool] = {}

    def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Run one call until it returns or the deadline passes."""
        identity = secrets.token_hex(8)  # cannot be guessed, so no other line passes for the reply
        try:
            message = json.dumps({"id": identity, "arguments": arguments})
        except (TypeError, ValueError, RecursionError) as error:
            return Outcome(None, "not_json", str(error)[:300])
        self.start()
        try:
            reply = self._exchange(message.encode() + b"\n", identity)
        except _Ended as end:
            self.kill()
            return end.outcome
        self._calls_left -= 1
        if self._calls_left <= 0 or reply.cause == "memory":
            self.kill()
            self._spawn()
        return reply

    def start(self) -> dict[str, bool]:
        """Start the worker if it is not running, wait until it is ready, and return what is isolated."""
        if self._process is None:
            self._spawn()
        if self._isolation:
            return self._isolation
        try:
            greeting = self._read_line(time.monotonic() + START_SECONDS)
        except _Ended as end:
            self.kill()
            raise PoolError(f"a worker for {self._function} did not start ({end})") from None
        if "ready" not in greeting:
            self.kill()
            raise PoolError(f"cannot load {self._function}: {greeting.get('failed')}")
        self._isolation = dict(greeting["ready"])
        return self._isolation

    def kill(self) -> None:
        """Kill the process and all its descendants, and remove its scratch directory."""
        if self._process is None:
            return
        os.close(self._lifeline)  # the supervisor then does all of this and exits
        try:
            self._process.wait(2 * PATIENCE)
        except subprocess.TimeoutExpired:
            kill_descendants(self._process.pid)
            self._process.kill()
            self._process.wait()
        remove_scratch(self._scratch)  # in case the supervisor was killed
        self._process = None
        self._channel.close()

    def _spawn(self) -> None:
        user = draw_user()
        self._scratch = make_scratch(user)
        self._channel, theirs = socket.socketpair()
        watched, self._lifeline = os.pipe()
        path = list(importable().path)
        job = WorkerJob(
            self._function, self._limits, path, user, self._scratch, theirs.fileno(), lifeline=watched
        )
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                [sys.executable, "-I", "-B", "-c", _START, str(Path(__file__).parents[2]), job.to_json()],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), watched),
                start_new_session=True,
            )
        except BaseException:
            remove_scratch(self._scratch)
            raise
        finally:
            theirs.close()
            os.close(watched)
        self._received = bytearray()
        self._isolation = {}
        self._calls_left = self._limits.calls

    def _environment(self) -> dict[str, str]:
        if self._limits.confined:
            inherited = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            inherited |= {"HOME": self._scratch, "TMPDIR": self._scratch}
        else:
            inherited = environment_for_own_code()
        return inherited | {
            OWNER_VARIABLE: str(os.getpid()),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def _exchange(self, message: bytes, identity: str) -> Outcome:
        until = time.monotonic() + self._limits.deadline
        try:
            self._channel.settimeout(self._limits.deadline)
            self._channel.sendall(message)
        except OSError as error:
            raise _Ended("crash", f"the worker does not accept calls: {error}") from None
        reply = self._read_line(until)
        while reply.get("id") != identity:  # left over from an earlier call
            reply = self._read_line(until)
        cause = reply.get("cause")
        if cause not in (None, "exception", "memory"):
            raise _Ended("protocol", "the worker gave an unknown cause")
        return Outcome(reply.get("value"), cause, printable(str(reply.get("detail", "")), 300))

    def _read_line(self, until: float) -> dict[str, Any]:
        while b"\n" not in self._received:
            self._channel.settimeout(max(0.001, until - time.monotonic()))
            try:
                data = self._channel.recv(65536)
            except TimeoutError:
                raise _Ended("timeout", f"no reply after {self._limits.deadline:g} s") from None
            except OSError as error:
                raise _Ended("crash", str(error)) from None
            if not data:
                raise _Ended("crash", "the worker process died")
            self._received += data
            if len(self._received) > MAX_REPLY or time.monotonic() > until:
                raise _Ended(
                    "protocol" if len(self._received) > MAX_REPLY else "timeout", "the reply did not end"
                )
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        with contextlib.suppress(ValueError, RecursionError):
            reply = json.loads(line)
            if isinstance(reply, dict):
                return reply
        raise _Ended("protocol", "the worker sent something other than a JSON object")
