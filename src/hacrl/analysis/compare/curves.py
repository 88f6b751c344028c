"""How fast methods learn: the area under the curve, and accuracy at equal rollouts and CPU seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.statistics import Array
from hacrl.analysis.compare.tables import Table, tabulate
from hacrl.training.evaluation import Measure


@dataclass(frozen=True, slots=True)
class Budget:
    """Accuracy after the same cost for everybody: what the cheapest method costs in all."""

    per_agent: float
    table: Table


@dataclass(frozen=True, slots=True)
class Curves:
    """Accuracy during the run, the mean of the agents."""

    task: str
    measure: Measure
    accuracy: dict[str, dict[int, float]]
    """By method and step, mean over seeds and problems."""
    area: Table
    """Mean accuracy over the run, by step."""
    equal_rollouts: Budget
    equal_cpu_seconds: Budget
    rollouts_to_reach: dict[str, dict[str, float | None]]
    """By reference and method: rollouts per agent until the reference's final accuracy; None: never."""


def draw_curves(outcomes: Outcomes, task: str, kind: Measure, references: Sequence[str]) -> Curves:
    """The curves of all methods; between two evaluations accuracy is taken as a straight line."""
    found = {method: outcomes.curve(method, task, kind) for method in outcomes.plan.recipes}
    curves = _scored_everywhere({method: values for method, (_, values) in found.items()})
    share = {method: np.array(steps) / steps[-1] for method, (steps, _) in found.items()}
    rollouts = {method: share[method] * outcomes.cost(method, "rollouts") for method in curves}
    seconds = {method: share[method] * outcomes.cost(method, "cpu_seconds") for method in curves}
    means = {method: values.mean(axis=(1, 2)) for method, values in curves.items()}
    return Curves(
        task=task,
        measure=kind,
        accuracy={
            method: dict(zip(found[method][0], mean.tolist(), strict=True)) for method, mean in means.items()
        },
        area=tabulate({method: _area(share[method], curves[method]) for method in curves}, references),
        equal_rollouts=_at_equal(rollouts, curves, references),
        equal_cpu_seconds=_at_equal(seconds, curves, references),
        rollouts_to_reach={
            reference: {
                method: _first_at(rollouts[method], means[method], float(means[reference][-1]))
                for method in curves
            }
            for reference in references
        },
    )


def _scored_everywhere(curves: dict[str, Array]) -> dict[str, Array]:
    """Without the problems that some run could not score at some evaluation."""
    scored = ~np.any([np.isnan(values).any(axis=(0, 1)) for values in curves.values()], axis=0)
    return {method: values[:, :, scored] for method, values in curves.items()}


def _area(share: Array, values: Array) -> Array:
    """[seed, problem]: the mean height of each curve."""
    if len(share) == 1:
        return np.asarray(values[0])
    heights = (values[1:] + values[:-1]) / 2
    return np.asarray(np.tensordot(np.diff(share), heights, axes=1) / (share[-1] - share[0]))


def _at_equal(costs: dict[str, Array], curves: dict[str, Array], references: Sequence[str]) -> Budget:
    budget = min(float(cost[-1]) for cost in costs.values())
    values = {method: _at(budget, costs[method], curves[method]) for method in curves}
    return Budget(budget, tabulate(values, references))


def _at(budget: float, cost: Array, values: Array) -> Array:
    """[seed, problem]: the curves' height at a cost."""
    position = float(np.interp(budget, cost, np.arange(len(cost))))
    below = min(int(position), len(cost) - 1)
    above = min(below + 1, len(cost) - 1)
    return np.asarray(values[below] + (position - below) * (values[above] - values[below]))


def _first_at(cost: Array, curve: Array, goal: float) -> float | None:
    """What it costs until the curve first is at the goal."""
    above = np.flatnonzero(curve >= goal)
    if not len(above):
        return None
    end = int(above[0])
    if end == 0:
        return float(cost[0])
    return float(np.interp(goal, curve[end - 1 : end + 1], cost[end - 1 : end + 1]))
