"""How the cost of a step grows, and what a second core adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from hacrl.bench.peer.our_step import OurSide
from hacrl.bench.peer.result import Spread
from hacrl.bench.peer.workload import SIZES, Workload
from hacrl.bench.tables import Table
from hacrl.bench.two_cores import TwoCores, measure_two_cores

BASE = Workload(SIZES["S"], eos_hazard=0.0, max_new=64, prompts=8, samples=8)
"""A 4-layer model; full-length answers, so that the amount of work is exact."""
POINTS = {
    "prompts": [replace(BASE, prompts=n) for n in (4, 16, 64)],
    "samples": [replace(BASE, samples=n) for n in (4, 16, 64)],
    "response tokens": [replace(BASE, prompts=2, samples=2, max_new=n) for n in (64, 256, 1024, 4096)],
}
REPEATS = 3


@dataclass(frozen=True)
class Point:
    """One workload's best step out of a few."""

    axis: str
    value: int
    seconds: float
    tokens: int
    flops: int


@dataclass(frozen=True)
class Scaling:
    """The curves and the gain of a second core."""

    points: list[Point]
    two_cores: TwoCores


def measure_scaling(progress: Callable[[str], None] = lambda _: None) -> Scaling:
    """Run every point, then one and two processes side by side."""
    torch.set_num_threads(1)
    points = []
    for axis, workloads in POINTS.items():
        for work in workloads:
            value = {"prompts": work.prompts, "samples": work.samples}.get(axis, work.max_new)
            progress(f"{axis} {value}")
            points.append(_point(axis, value, work))
    progress("one and two agents side by side")
    return Scaling(points, measure_two_cores(Workload(SIZES["S"])))


def _point(axis: str, value: int, work: Workload) -> Point:
    side = OurSide(work, "fused")
    steps = [side.step(number) for number in range(REPEATS)]
    best = min(steps, key=lambda step: step.total)
    return Point(axis, value, best.total, best.tokens, best.flops)


def scaling_tables(found: Scaling) -> list[Table]:
    """One table per axis, and one for the two cores."""
    return [_curve(axis, [p for p in found.points if p.axis == axis]) for axis in POINTS] + [
        _two_cores(found.two_cores)
    ]


def _curve(axis: str, points: list[Point]) -> Table:
    header = (axis, "seconds", "microseconds per token", "MFLOP per token", "GFLOP/s")
    rows = [
        (
            f"{point.value:,}",
            f"{point.seconds:.3f}",
            f"{1e6 * point.seconds / point.tokens:.0f}",
            f"{point.flops / point.tokens / 1e6:.2f}",
            f"{point.flops / point.seconds / 1e9:.1f}",
        )
        for point in points
    ]
    return Table(f"A step against the number of {axis} (4 layers, full-length answers)", header, rows)


def _two_cores(found: TwoCores) -> Table:
    header = ("", "steps/s", "gain")
    rows = [
        ("one agent, one core", f"{found.alone.median:.2f}", ""),
        ("two agents, two cores", f"{found.together.median:.2f}", _range(found.gain)),
    ]
    return Table("Throughput of two agents, each in a process on a core of its own", header, rows)


def _range(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"
