"""What training did besides changing accuracies: how far agents moved, how they respond, what they accept."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hacrl.analysis.compare.outcomes import Outcomes, Summary

LAST_STEPS = 5
"""Over which metrics are averaged."""

DRIFT = {
    "kl": "KL from the start",
    "perplexity_before": "perplexity before",
    "perplexity": "perplexity after",
}
"""Measures of `hacrl.training.drift`, in the order of their columns."""
METRICS = {
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut off",
    "ratio/mean": "ratio",
    "inside": "inside the window",
    "gate/accepted": "passes the gate",
    "gate/needed": "as needed",
    "contextual/brier": "Brier score",
    "contextual/spread": "of one number",
}
"""Metrics of an agent or a pair. `kl` is none of them: there it is the penalty in the loss."""
TITLES = DRIFT | METRICS

_METRIC = re.compile(rf"(agent/|cross/[^/]+->)(?P<agent>[^/]+)/(?P<name>{'|'.join(METRICS)})")
"""Of an agent, or of a pair, which counts for its learner."""


def last_means(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The means of these metrics over the last steps that have them, to four digits."""
    found: dict[str, list[float]] = {}
    for line in metrics[-LAST_STEPS:]:
        for key, value in line.items():
            if _METRIC.fullmatch(key) and isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(key, []).append(value)
    return {key: float(f"{fmean(values):.4g}") for key, values in found.items()}


def besides(outcomes: Outcomes) -> dict[str, dict[str, dict[str, float]]]:
    """By method, agent and measure: means over the seeds that have it."""
    return {
        method: {agent: _means([dict(_measured(run, agent)) for run in runs]) for agent in outcomes.agents}
        for method, runs in outcomes.summaries.items()
    }


def _measured(run: Summary, agent: str) -> Iterator[tuple[str, float]]:
    yield from run["agents"][agent].get("drift", {}).items()
    of_agent: dict[str, list[float]] = {}
    for key, value in run.get("metrics", {}).items():
        match = _METRIC.fullmatch(key)
        if match and match["agent"] == agent:
            of_agent.setdefault(match["name"], []).append(value)
    yield from ((name, fmean(values)) for name, values in of_agent.items())


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found = {name: [run[name] for run in runs if name in run] for name in TITLES}
    return {name: fmean(values) for name, values in found.items() if values}
