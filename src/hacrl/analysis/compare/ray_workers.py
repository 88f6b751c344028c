"""Workers on a Ray cluster: each is a process there that does what a local worker does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hacrl.analysis.compare.plan import PlannedRun
from hacrl.analysis.compare.workers import LocalWorker
from hacrl.runtime.cluster import Head, open_cluster

CONNECT_SECONDS = 60.0


class WorkerProcess(LocalWorker):
    """What is on the cluster. Runs below it are not Ray's: they get neither its settings nor its token."""

    def __init__(self, folder: str) -> None:
        os.chdir(folder)  # paths in recipes are meant from where the comparison was started
        super().__init__({name: value for name, value in os.environ.items() if not name.startswith("RAY_")})


class RayWorker:
    """A worker wherever the cluster has room; one that is lost costs its run alone and is started anew."""

    def __init__(self, ray: Any, head: Head) -> None:
        self.run: PlannedRun | None = None
        self._ray = ray
        self._head = head
        self._start()

    @property
    def idle(self) -> bool:
        """It has no run, and the cluster has found room for it."""
        return self.run is None and self._is_there(self._ready)

    def begin(self, run: PlannedRun) -> None:
        """Let an idle worker begin or resume a run."""
        self.run = run
        self._actor.begin.remote(run)
        self._answer = self._actor.ended.remote()

    def ended(self) -> str | None:
        """How the run's process ended, or why it was lost; None while it goes on."""
        if self.run is None or not self._is_there(self._answer):
            return None
        try:
            how: str | None = self._ray.get(self._answer)
        except self._ray.exceptions.RayError as error:
            how = f"with its worker on the cluster: {str(error).strip()}"
            self._head.check()
            self.close()
            self._start()
        if how is None:
            self._answer = self._actor.ended.remote()
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
        self._actor: Any = self._ray.remote(WorkerProcess).options(**options).remote(os.getcwd())
        self._ready = self._answer = self._actor.__ray_ready__.remote()

    def _is_there(self, answer: Any) -> bool:
        self._head.check_now_and_then()
        return bool(self._ray.wait([answer], timeout=0)[0])


@contextmanager
def ray_workers(jobs: int | None, address: str | None, runs: int) -> Iterator[list[RayWorker]]:
    """As many as there are runs, at most `jobs`; by default as many as the cluster has CPUs."""
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
