"""What was measured before and after a run, without the outcome of every single problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hacrl.analysis.report.series import rounded

MEASURES = ("greedy", "mean_at_k", "pass_at_k")
"""Those of `hacrl.training.evaluation`, which takes seconds to import: it brings the models along."""
COSTS = ("rollouts", "generated_tokens", "trained_tokens", "updates")


def outcomes(summary: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Per agent: costs, and per task every measure before and after; None until the run is finished."""
    if summary is None:
        return None
    return {
        name: {
            "retired": agent["retired"],
            **{cost: agent[cost] for cost in COSTS},
            "tasks": {
                task: {
                    "samples": after["samples"],
                    "before": _shares(agent["before"].get(task)),
                    "after": _shares(after),
                }
                for task, after in agent["after"].items()
            },
        }
        for name, agent in summary["agents"].items()
    }


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
        if (share := evaluation[measure]) is not None
    }
