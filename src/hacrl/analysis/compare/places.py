"""Where runs are carried out: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hacrl.analysis.compare.workers import LocalWorker, Worker


@dataclass(frozen=True)
class Place:
    """Where, and how many runs at the same time."""

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
        """Workers for so many runs; they are ended afterwards, with what they still do."""
        if self.runtime == "ray" and runs:
            from hacrl.analysis.compare.ray_workers import ray_workers

            with ray_workers(self.jobs, self.address, runs) as remote:
                yield list(remote)
            return
        workers: list[Worker] = [LocalWorker() for _ in range(min(self.jobs or os.cpu_count() or 1, runs))]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.close()
