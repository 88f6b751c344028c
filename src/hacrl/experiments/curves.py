"""How fast methods learn: the area under the curve, and accuracy at equal rollouts and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hacrl.evaluate import Measure
from hacrl.experiments.outcomes import Outcomes
from hacrl.experiments.statistics import Array
from hacrl.experiments.tables import Table, tabulate


@dataclass(frozen=True, slots=True)
class Budget:
    """Accuracy after the same cost for everybody: what the cheapest method costs in all."""

    per_agent: float
    table: Table


@dataclass(frozen=True, slots=True)
class Curves:
    """Accuracy during the run, the mean of the agents, on the run's test problems.

    Runs do not keep single problems here: intervals are over seeds alone, for these problems.
    """

    task: str
    measure: Measure
    accuracy: dict[str, dict[int, float]]
    """By method and step, mean over seeds."""
    area: Table
    """Mean accuracy over the run, by step."""
    equal_rollouts: Budget
    equal_seconds: Budget
    rollouts_to_reach: dict[str, dict[str, float | None]]
    """By reference and method: rollouts per agent until the reference's final accuracy; None: never."""


def draw_curves(
    outcomes: Outcomes, task: str, kind: Measure, references: Sequence[str], problems: int
) -> Curves:
    """The curves of all methods; between two evaluations accuracy is taken as a straight line."""
    found = {method: outcomes.curve(method, task, kind) for method in outcomes.plan.recipes}
    curves = {method: values for method, (_, values) in found.items()}
    share = {method: np.array(steps) / steps[-1] for method, (steps, _) in found.items()}
    rollouts = {method: share[method] * outcomes.cost(method, "rollouts") for method in curves}
    seconds = {method: share[method] * outcomes.cost(method, "seconds") for method in curves}
    one_answer = 1 / (problems * len(outcomes.agents))
    reach: dict[str, dict[str, float | None]] = {reference: {} for reference in references}
    for reference in references:
        for method in curves:
            goal = float(curves[reference][:, -1].mean())
            reach[reference][method] = _first_at(rollouts[method], curves[method].mean(axis=0), goal)
    return Curves(
        task=task,
        measure=kind,
        accuracy={
            method: dict(zip(steps, values.mean(axis=0).tolist(), strict=True))
            for method, (steps, values) in found.items()
        },
        area=tabulate({m: _area(share[m], curves[m]) for m in curves}, references, one_answer),
        equal_rollouts=_at_equal(rollouts, curves, references, one_answer),
        equal_seconds=_at_equal(seconds, curves, references, one_answer),
        rollouts_to_reach=reach,
    )


def _area(share: Array, values: Array) -> Array:
    """[seed, 1]: the mean height of each curve."""
    if len(share) == 1:
        return values
    heights = (values[:, 1:] + values[:, :-1]) / 2
    mean_height = (heights * np.diff(share)).sum(axis=1, keepdims=True) / (share[-1] - share[0])
    return np.asarray(mean_height)


def _at_equal(
    costs: dict[str, Array], curves: dict[str, Array], references: Sequence[str], one_answer: float
) -> Budget:
    budget = min(float(cost[-1]) for cost in costs.values())
    values = {
        method: np.array([[np.interp(budget, costs[method], seed)] for seed in curves[method]])
        for method in curves
    }
    return Budget(budget, tabulate(values, references, one_answer))


def _first_at(cost: Array, curve: Array, goal: float) -> float | None:
    """What it costs until the curve first is at the goal."""
    above = np.flatnonzero(curve >= goal)
    if not len(above):
        return None
    end = int(above[0])
    if end == 0:
        return float(cost[0])
    return float(np.interp(goal, curve[end - 1 : end + 1], cost[end - 1 : end + 1]))
