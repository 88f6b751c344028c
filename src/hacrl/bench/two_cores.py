"""What a second core adds when two agents have nothing to do with each other: the most a runtime can reach.

Whole steps that agents take together, with their waiting and exchange, are in `runtimes.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter

from hacrl.bench.peer.result import Spread
from hacrl.bench.peer.workload import Workload, workload_from_json

STEPS = 4
"""Of every worker in one round."""


@dataclass(frozen=True)
class TwoCores:
    """Steps per second, and their ratio within each round."""

    alone: Spread
    together: Spread
    gain: Spread


class _Worker:
    """A process with one agent that runs a few steps whenever it is told to."""

    def __init__(self, work: Workload, core: int) -> None:
        command = [sys.executable, "-m", __name__, json.dumps(asdict(work)), str(core)]
        self._process = subprocess.Popen(  # noqa: S603 (our own module)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.wait()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(
                f"a worker ended early with exit code {self._process.wait()}; see its output above"
            )

    def close(self) -> None:
        self._process.communicate()


def measure_two_cores(work: Workload, rounds: int = 5) -> TwoCores:
    """Alternate between one worker alone and both at the same time."""
    with _workers(work) as workers:
        alone, together = [], []
        for _ in range(rounds):
            alone.append(_steps_per_second(workers[:1]))
            together.append(_steps_per_second(workers))
    gain = [both / one for both, one in zip(together, alone, strict=True)]
    return TwoCores(Spread.of(alone), Spread.of(together), Spread.of(gain))


@contextmanager
def _workers(work: Workload) -> Iterator[list[_Worker]]:
    workers: list[_Worker] = []
    try:
        for core in range(2):
            workers.append(_Worker(work, core))
        yield workers
    finally:
        for worker in workers:
            worker.close()


def _steps_per_second(workers: list[_Worker]) -> float:
    begun = perf_counter()
    for worker in workers:
        worker.go()
    for worker in workers:
        worker.wait()
    return len(workers) * STEPS / (perf_counter() - begun)


def main(work: Workload, core: int) -> None:
    """Make an agent, warm up, then run a few steps for every line of standard input."""
    import torch

    from hacrl.bench.peer.our_step import OurSide

    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    torch.set_num_threads(1)
    side = OurSide(work, "fused")
    side.step(0)
    print("ready", flush=True)
    for _ in sys.stdin:
        # The same answers every time: rounds and workers do the same amount of work.
        for step in range(STEPS):
            side.step(step)
        print("done", flush=True)


if __name__ == "__main__":
    main(workload_from_json(sys.argv[1]), int(sys.argv[2]))
