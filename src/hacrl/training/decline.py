"""Notices agents that get worse: rewards and evaluations below where they began, in standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, stdev, variance
from typing import Any

from hacrl.training.evaluation import Evaluation, Evaluations

WINDOW = 5
"""Steps at the beginning and at the end whose rewards are compared."""
SMALLEST_ERROR = 0.01
"""Standard errors of a mean reward count as at least this much: a smaller fall is not a clear one."""


class RewardDecline:
    """Compares every agent's latest mean rewards with its first ones."""

    def __init__(self) -> None:
        self._first: dict[str, list[float]] = {}
        self._latest: dict[str, list[float]] = {}

    def observe(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """`agent/<name>/reward_change` of all agents that have had enough steps."""
        changes = {}
        for key, reward in metrics.items():
            section, name, measure = (*key.split("/", 2), "", "")[:3]
            if section != "agent" or measure != "reward" or math.isnan(reward):
                continue
            first, latest = self._first.setdefault(name, []), self._latest.setdefault(name, [])
            if len(first) < WINDOW:
                first.append(reward)
                continue
            latest.append(reward)
            del latest[:-WINDOW]
            if len(latest) == WINDOW:
                changes[f"agent/{name}/reward_change"] = change(first, latest)
        return changes

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"first": self._first, "latest": self._latest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._first = {name: list(rewards) for name, rewards in state["first"].items()}
        self._latest = {name: list(rewards) for name, rewards in state["latest"].items()}


def change(first: list[float], latest: list[float]) -> float:
    """The difference of two means in standard errors; the errors are estimated from the steps (Welch)."""
    error = math.sqrt(variance(first) / len(first) + variance(latest) / len(latest))
    return (fmean(latest) - fmean(first)) / max(error, SMALLEST_ERROR)


def evaluation_changes(before: Evaluations, now: Evaluations) -> dict[str, float]:
    """`agent/<name>/evaluation_change`: on the task where it fell the most, greedy, in standard errors."""
    changes = {}
    for name, tasks in now.items():
        known = before.get(name, {})
        found = [paired_change(known[task], result) for task, result in tasks.items() if task in known]
        if found:
            changes[f"agent/{name}/evaluation_change"] = min(found)
    return changes


def paired_change(before: Evaluation, now: Evaluation) -> float:
    """The mean difference over problems that both could score, in standard errors; 0 with fewer than two."""
    earlier = dict(zip(before.problems.ids, before.problems.greedy, strict=True))
    pairs = zip(now.problems.ids, now.problems.greedy, strict=True)
    differences = [
        after - was
        for prompt, after in pairs
        if after is not None and (was := earlier.get(prompt)) is not None
    ]
    if len(differences) < 2:
        return 0.0
    count = len(differences)
    return fmean(differences) / max(stdev(differences) / math.sqrt(count), 1 / count)
