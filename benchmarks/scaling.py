"""How the cost of a step grows with the number of prompts, of samples and of response tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.our_step import OurSide
from benchmarks.workload import SIZES, Workload
from hacrl.analysis.tables import TextTable

BASE = Workload(SIZES["S"], eos_hazard=0.0, max_new=64, prompts=8, samples=8)
"""A 4-layer model; full-length responses, so that the amount of work is exact."""
POINTS = {
    "prompts": [replace(BASE, prompts=n) for n in (4, 16, 64)],
    "samples": [replace(BASE, samples=n) for n in (4, 16, 64)],
    "response tokens": [replace(BASE, prompts=2, samples=2, max_new=n) for n in (64, 256, 1024, 4096)],
}


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
    """All curves, point by point."""

    points: list[Point]


def scaling(repeats: Repeats = 3, markdown: Markdown = False, json_file: JsonFile = None) -> None:
    """Time steps of growing size: more prompts, more samples, longer responses.

    One agent of size S on one thread, responses of full length. The fastest of --repeats steps counts. Takes
    a few minutes: the longest responses have 4096 tokens.
    """
    found = measure_scaling(repeats)
    show(scaling_tables(found), found, markdown, json_file)


def measure_scaling(repeats: int) -> Scaling:
    """Run every point."""
    torch.set_num_threads(1)
    points = []
    for axis, workloads in POINTS.items():
        for work in workloads:
            value = {"prompts": work.prompts, "samples": work.samples}.get(axis, work.max_new)
            progress(f"{axis} {value}")
            points.append(_point(axis, value, work, repeats))
    return Scaling(points)


def _point(axis: str, value: int, work: Workload, repeats: int) -> Point:
    side = OurSide(work, "fused")
    steps = [side.step(number) for number in range(repeats)]
    best = min(steps, key=lambda step: step.total)
    return Point(axis, value, best.total, best.tokens, best.flops)


def scaling_tables(found: Scaling) -> list[TextTable]:
    """One table per axis."""
    return [_curve(axis, [point for point in found.points if point.axis == axis]) for axis in POINTS]


def _curve(axis: str, points: list[Point]) -> TextTable:
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
    return TextTable(f"A step against the number of {axis} (4 layers, full-length responses)", header, rows)


app = command(scaling)

if __name__ == "__main__":
    app()
