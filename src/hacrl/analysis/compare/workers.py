"""Worker processes that execute runs one after another, on this machine's cores or on a Ray cluster.

Both ends of the pipe are here. The comparison holds a `LocalWorker`, which starts this module as a program
(`main`). Every line of JSON on that program's standard input is a job. It replies on standard output with the
process id of the run and, once the run has ended, with its exit code.

Importing torch takes seconds, so a worker does it once. Each run is a fork of the worker, which has a single
thread and no state: a run cannot affect the next one or crash the worker. Standard input closes when the
comparison ends, for whatever reason; then the worker and its run end too.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from hacrl.analysis.compare.faults import Faults
from hacrl.analysis.compare.plan import PlannedRun

if TYPE_CHECKING:
    from hacrl.runtime.cluster import Head

CONNECT_SECONDS = 60.0


class Worker(Protocol):
    """Executes one run after another, each in its own process."""

    run: PlannedRun | None
    """The current run; None: idle or starting."""

    @property
    def idle(self) -> bool:
        """Whether it can begin a run now."""

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""

    def ended(self) -> str | None:
        """How the run's process ended, which leaves the worker without a run; None while it goes on."""

    def ask_to_stop(self) -> None:
        """Let its run, if any, finish its step and save."""

    def close(self) -> None:
        """End it at once, and the run that it still has."""


@dataclass(frozen=True)
class WorkerPool:
    """Where runs are executed, and how many at the same time."""

    runtime: str = "local"
    """`local` or `ray`."""
    jobs: int | None = None
    """None: one per core, here or of the whole cluster."""
    address: str | None = None
    """`host:port` of a running Ray cluster; None starts one that only this machine can reach."""

    def __post_init__(self) -> None:
        if self.runtime not in ("local", "ray"):
            raise ValueError(f"--runtime {self.runtime}: expected local or ray")
        if self.address is not None and self.runtime != "ray":
            raise ValueError(f"--address {self.address}: this is for --runtime ray")

    @contextmanager
    def workers(self, runs: int) -> Iterator[list[Worker]]:
        """Workers for that many runs; ended afterwards, with any run they still have."""
        if self.runtime == "ray" and runs:
            with ray_workers(self.jobs, self.address, runs) as remote:
                yield list(remote)
            return
        workers: list[Worker] = [LocalWorker() for _ in range(min(self.jobs or os.cpu_count() or 1, runs))]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.close()


class LocalWorker:
    """A worker process on this machine; one that died is replaced."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.run: PlannedRun | None = None
        self._environment = environment
        self._process = self._start()
        self._pid: int | None = None

    @property
    def idle(self) -> bool:
        """Whether it has no run."""
        return self.run is None

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""
        if self._process.poll() is not None:
            self._process = self._start()
        self.run, self._pid = run, None
        job = {
            "recipe": run.recipe.resolved(),
            "faults": run.faults.model_dump(mode="json"),
            "dtypes": dict(run.dtypes),
            "out": str(run.directory.path),
            "resume": run.begun,
            "log": str(run.log),
        }
        with suppress(BrokenPipeError):  # the worker has died: `ended` will report it
            self._jobs.write(json.dumps(job).encode() + b"\n")

    def ended(self) -> str | None:
        """The exit code once the run is over; None while it goes on."""
        while self.run and select.select([self._replies], [], [], 0)[0]:
            reply = self._replies.readline()
            if not reply:  # the worker is dead, and its run ends when the jobs are closed
                self.close()
                self.run = None
                return f"with code {self._process.returncode}"
            if self._pid is not None:
                self.run = None
                return f"with code {int(reply)}"
            self._pid = int(reply)
        return None

    def ask_to_stop(self) -> None:
        """Let its run, if any, finish its step and save."""
        if self.run and self._pid is None:  # still importing: wait until the run has started
            self._pid = int(self._replies.readline() or 0)
        if self.run and self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)

    def close(self) -> None:
        """End it at once; a run that it still has kills itself."""
        self._jobs.close()
        self._process.kill()
        self._process.wait()
        self._replies.close()

    @property
    def _jobs(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _replies(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hacrl.analysis.compare.workers"],
            bufsize=0,  # `select` sees only what no buffer has taken
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**self._environment, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,  # Ctrl-C reaches the comparison alone, which passes it on once
        )


class WorkerActor(LocalWorker):
    """The worker on a cluster machine. Ray's settings and token are not passed on to its runs."""

    def __init__(self, folder: str) -> None:
        os.chdir(folder)  # paths in recipes are relative to where the comparison was started
        super().__init__({name: value for name, value in os.environ.items() if not name.startswith("RAY_")})


class RayWorker:
    """A worker on any cluster machine with a free CPU; if it is lost, its run fails and it is replaced."""

    def __init__(self, ray: Any, head: Head) -> None:
        self.run: PlannedRun | None = None
        self._ray = ray
        self._head = head
        self._start()

    @property
    def idle(self) -> bool:
        """Whether it has no run and the cluster has scheduled it."""
        return self.run is None and self._is_there(self._ready)

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""
        self.run = run
        self._actor.begin.remote(run)
        self._reply = self._actor.ended.remote()

    def ended(self) -> str | None:
        """How the run's process ended, or why it was lost; None while it goes on."""
        if self.run is None or not self._is_there(self._reply):
            return None
        try:
            how: str | None = self._ray.get(self._reply)
        except self._ray.exceptions.RayError as error:
            how = f"with its worker on the cluster: {str(error).strip()}"
            self._head.check()
            self.close()
            self._start()
        if how is None:
            self._reply = self._actor.ended.remote()
        else:
            self.run = None
        return how

    def ask_to_stop(self) -> None:
        """Let its run, if any, finish its step and save."""
        self._actor.ask_to_stop.remote()

    def close(self) -> None:
        """End it at once; a run that it still has kills itself."""
        if not self._head.lost:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._actor)

    def _start(self) -> None:
        options = {"num_cpus": 1, "max_restarts": 0}
        self._actor: Any = self._ray.remote(WorkerActor).options(**options).remote(os.getcwd())
        self._ready = self._reply = self._actor.__ray_ready__.remote()

    def _is_there(self, reply: Any) -> bool:
        self._head.check_if_due()
        return bool(self._ray.wait([reply], timeout=0)[0])


@contextmanager
def ray_workers(jobs: int | None, address: str | None, runs: int) -> Iterator[list[RayWorker]]:
    """As many as there are runs, at most `jobs`; by default as many as the cluster has CPUs."""
    from hacrl.runtime.cluster import Head, open_cluster

    cpus = jobs or os.cpu_count() or 1
    with open_cluster(address, cpus, CONNECT_SECONDS) as ray:
        room = jobs or int(ray.cluster_resources().get("CPU", 1))
        head = Head(ray.get_runtime_context().gcs_address)
        workers = [RayWorker(ray, head) for _ in range(min(room, runs))]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.close()


def main() -> None:
    """The worker process: do the jobs on standard input until it closes."""
    import hacrl.training.trainer  # noqa: F401  (what every run needs)

    while line := sys.stdin.readline():
        job = json.loads(line)
        run = os.fork()
        if run == 0:
            os._exit(_train(job))
        print(run, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]), flush=True)


def _train(job: Mapping[str, Any]) -> int:
    """The run, in its own process; returns its exit code."""
    from hacrl.recipe import parse_recipe
    from hacrl.training.run import Stopped
    from hacrl.training.trainer import train

    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        recipe = parse_recipe(job["recipe"])
        deliver = Faults.model_validate(job["faults"]).delivery(recipe)
        train(recipe, job["out"], resume=job["resume"], deliver=deliver, dtypes=job["dtypes"])
        return 0
    except Stopped as stopped:
        return 128 + stopped.signal
    except BaseException:  # no exception may reach the worker's own loop
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _end_with_parent() -> None:
    os.read(0, 1)  # no job is sent during a run: this returns when the parent has ended
    os.kill(os.getpid(), signal.SIGKILL)  # the run can resume from its last checkpoint


if __name__ == "__main__":
    main()
