"""What a second core adds when two agents are independent: an upper bound for every runtime.

Whole steps that agents take together, with their waiting and exchange, are in `runtimes.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter

import torch

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.our_step import OurSide
from benchmarks.timing import Spread
from benchmarks.workload import NO_LEARNING, SIZES, Workload
from hacrl.analysis.tables import TextTable

WORK = Workload(SIZES["S"], learning_rate=NO_LEARNING)
STEPS = 4
"""Of every worker in one round."""


@dataclass(frozen=True)
class TwoCores:
    """Steps per second, and their ratio within each round."""

    alone: Spread
    together: Spread
    gain: Spread


def two_cores(repeats: Repeats = 5, markdown: Markdown = False, json_file: JsonFile = None) -> None:
    """Count the steps per second of one agent alone and of two agents at the same time.

    Each agent (size S) has a process and a core of its own and never waits for the other one: training them
    together cannot gain more from a second core.
    """
    found = measure_two_cores(WORK, repeats)
    show([two_cores_table(found)], found, markdown, json_file)


def measure_two_cores(work: Workload, repeats: int) -> TwoCores:
    """Alternate between one worker alone and both at the same time."""
    with _workers(work) as workers:
        alone, together = [], []
        for number in range(repeats):
            progress(f"round {number + 1} of {repeats}")
            alone.append(_steps_per_second(workers[:1]))
            together.append(_steps_per_second(workers))
    gain = [both / one for both, one in zip(together, alone, strict=True)]
    return TwoCores(Spread.of(alone), Spread.of(together), Spread.of(gain))


@contextmanager
def _workers(work: Workload) -> Iterator[list[Connection]]:
    """Two processes that are ready to take steps; they end with the block."""
    fresh = get_context("spawn")
    pipes = [fresh.Pipe() for _ in range(2)]
    processes = [
        fresh.Process(target=_work, args=(work, core, theirs), daemon=True)
        for core, (_, theirs) in enumerate(pipes)
    ]
    for process, (_, theirs) in zip(processes, pipes, strict=True):
        process.start()
        theirs.close()
    workers = [ours for ours, _ in pipes]
    try:
        for worker in workers:
            _wait(worker)
        yield workers
    finally:
        for worker, process in zip(workers, processes, strict=True):
            worker.close()
            process.join()


def _steps_per_second(workers: Sequence[Connection]) -> float:
    begun = perf_counter()
    for worker in workers:
        worker.send("go")
    for worker in workers:
        _wait(worker)
    return len(workers) * STEPS / (perf_counter() - begun)


def _wait(worker: Connection) -> None:
    try:
        worker.recv()
    except EOFError as error:
        raise RuntimeError("a worker ended early; see its output above") from error


def _work(work: Workload, core: int, orders: Connection) -> None:
    """Of a worker: make an agent, warm up, then run a few steps for every order."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    torch.set_num_threads(1)
    side = OurSide(work, "fused")
    side.step(0)
    try:
        while True:
            orders.send("ready")
            orders.recv()
            # The same responses every time: rounds and workers do the same amount of work.
            for step in range(STEPS):
                side.step(step)
    except (EOFError, BrokenPipeError):
        return  # no more orders


def two_cores_table(found: TwoCores) -> TextTable:
    """One agent beside two."""
    rows = [
        ("one agent, one core", f"{found.alone.median:.2f}", ""),
        ("two agents, two cores", f"{found.together.median:.2f}", f"{found.gain:.2f}"),
    ]
    title = "Throughput of two agents, each in a process on a core of its own"
    return TextTable(title, ("", "steps/s", "gain"), rows)


app = command(two_cores)

if __name__ == "__main__":
    app()
