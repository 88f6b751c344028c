"""Metrics as columns, thinned and rounded: what the plots are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

MOST_STEPS = 400
"""Longer runs show evenly spaced steps: more points than that cannot be told apart."""
MOST_EVALUATIONS = 100

Column = list[float | None]
T = TypeVar("T")


def columns(
    metrics: Sequence[Mapping[str, Any]], wanted: Callable[[str], bool] = lambda key: True
) -> dict[str, Any]:
    """`steps` and a column of values for every wanted key; None where a step lacks it."""
    evaluations = [line["step"] for line in metrics if any("/eval/" in key for key in line)]
    shown = set(spread([line["step"] for line in metrics], MOST_STEPS))
    shown |= set(spread(evaluations, MOST_EVALUATIONS))
    lines = [line for line in metrics if line["step"] in shown]
    keys = dict.fromkeys(key for line in lines for key in line if key != "step" and wanted(key))
    return {
        "steps": [line["step"] for line in lines],
        "series": {key: [rounded(line.get(key)) for line in lines] for key in keys},
    }


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most so many items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[round(place * last / (most - 1))] for place in range(most)]


def rounded(value: float | None) -> float | None:
    """Six significant digits: more than a plot shows, and half the size."""
    return None if value is None else float(f"{value:.6g}")
