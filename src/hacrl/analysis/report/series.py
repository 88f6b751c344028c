"""A run's metrics and results, subsampled and rounded, for plots and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

MOST_STEPS = 400
"""Longer runs are subsampled evenly: a plot cannot show more points."""
MOST_EVALUATIONS = 100
MEASURES = ("greedy", "mean_at_k", "pass_at_k", "pass_at_many")
"""Those of `hacrl.training.evaluation`, which takes seconds to import because it imports the models."""
COSTS = ("rollouts", "generated_tokens", "trained_tokens", "updates", "skipped_updates")

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


def outcomes(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Per agent: costs, and per task every measure before and after; None until the run is finished.

    The summary's outcomes of single problems are left out.
    """
    if summary is None:
        return None
    return {name: _outcome(agent) for name, agent in summary["agents"].items()}


def _outcome(agent: Mapping[str, Any]) -> dict[str, Any]:
    tasks = {
        task: {
            "samples": after["samples"],
            "before": _shares(agent["before"].get(task)),
            "after": _shares(after),
        }
        for task, after in agent["after"].items()
    }
    return {"retired": agent["retired"], **{cost: agent.get(cost, 0) for cost in COSTS}, "tasks": tasks}


def _shares(evaluation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    return {
        measure: {
            "mean": rounded(share["mean"]),
            "low": rounded(share["low"]),
            "high": rounded(share["high"]),
            "problems": share["problems"],
        }
        for measure in MEASURES
        if (share := evaluation.get(measure)) is not None
    }


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[round(place * last / (most - 1))] for place in range(most)]


def rounded(value: float | None) -> float | None:
    """Six significant digits: enough for plots, and half the size."""
    return None if value is None else float(f"{value:.6g}")
