"""The results of a comparison: estimates, differences with their words, budgets, curves, diversity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hacrl.analysis.compare.curves import Curves, draw_curves
from hacrl.analysis.compare.outcomes import Outcomes, When, same_problems
from hacrl.analysis.compare.statistics import Array, Estimate, measure
from hacrl.analysis.compare.tables import Table, tabulate, within_range
from hacrl.training.evaluation import Measure

COSTS = ("steps", "rollouts", "generated_tokens", "trained_tokens", "updates", "cpu_seconds")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """All methods in one measure on one task."""

    task: str
    measure: Measure
    problems: int
    left_out: int
    """Problems that some run could not score; they count for nobody."""
    mean: Table
    """Mean of the agents."""
    worst: Table
    """The agent that is worst in each run."""
    agents: dict[str, dict[str, Estimate]]
    """By agent and method."""
    before: dict[str, Estimate]
    """Before training: `mean`, `worst` and every agent."""


@dataclass(frozen=True, slots=True)
class Results:
    """Everything `results.json` holds."""

    task: str
    agents: tuple[str, ...]
    methods: tuple[str, ...]
    references: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: int
    samples: int
    """k of mean@k and pass@k."""
    versions: dict[str, str]
    commits: list[str]
    budgets: dict[str, dict[str, float]]
    """By method, per agent: means over seeds and agents."""
    accuracies: list[Accuracy]
    curves: list[Curves]
    """Empty unless the recipe evaluates during the run."""
    by_kind: dict[str, dict[str, dict[str, dict[str, float]]]]
    """Greedy accuracy by task, method, kind of prompt and agent; only of tasks with several kinds."""
    alike: dict[str, dict[str, Estimate]]
    """By method, `before` and `after`: share of problems to which two agents give the same answer."""
    retired: list[str]


def make_results(
    outcomes: Outcomes, references: Sequence[str], versions: dict[str, str], commits: list[str]
) -> Results:
    """All tables of a finished comparison."""
    same_problems(outcomes)
    plan, first = outcomes.plan, outcomes.first
    task, agent = outcomes.tasks[0], outcomes.agents[0]
    wanted = [(task, kind) for task in outcomes.tasks for kind in outcomes.measures]
    accuracies = [_accuracy(outcomes, task, kind, references) for task, kind in wanted]
    evaluated_during_runs = all(recipe.evaluation.every for recipe in plan.recipes.values())
    return Results(
        task=task,
        agents=outcomes.agents,
        methods=tuple(plan.recipes),
        references=tuple(references),
        seeds=plan.seeds,
        runs=len(plan.runs()),
        samples=first["agents"][agent]["after"][task]["samples"],
        versions=versions,
        commits=commits,
        budgets={m: {key: outcomes.cost(m, key) for key in COSTS} for m in plan.recipes},
        accuracies=accuracies,
        curves=[
            draw_curves(outcomes, accuracy.task, accuracy.measure, references)
            for accuracy in accuracies
            if evaluated_during_runs
        ],
        by_kind=_by_kind(outcomes),
        alike=_alike(outcomes, task),
        retired=outcomes.retired(),
    )


def _accuracy(outcomes: Outcomes, task: str, kind: Measure, references: Sequence[str]) -> Accuracy:
    correct = outcomes.scored(task, kind)
    before = correct.pop("", None)
    problems = next(iter(correct.values())).shape[2]
    return Accuracy(
        task=task,
        measure=kind,
        problems=problems,
        left_out=outcomes.problems(task) - problems,
        mean=tabulate({method: values.mean(axis=0) for method, values in correct.items()}, references),
        worst=tabulate({method: _worst(values) for method, values in correct.items()}, references),
        agents={
            agent: {method: _estimate(values[number]) for method, values in correct.items()}
            for number, agent in enumerate(outcomes.agents)
        },
        before={} if before is None else _summaries(before, outcomes.agents),
    )


def _worst(correct: Array) -> Array:
    """[seed, problem]: the outcomes of the agent that is worst with that seed."""
    worst = correct.mean(axis=2).argmin(axis=0)
    return np.asarray(correct[worst, np.arange(correct.shape[1])])


def _summaries(correct: Array, agents: Sequence[str]) -> dict[str, Estimate]:
    summaries: Mapping[str, Array] = {
        "mean": correct.mean(axis=0),
        "worst": _worst(correct),
        **dict(zip(agents, correct, strict=True)),
    }
    return {name: _estimate(values) for name, values in summaries.items()}


def _by_kind(outcomes: Outcomes) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    found = {
        task: {method: outcomes.by_kind(method, task) for method in outcomes.plan.recipes}
        for task in outcomes.tasks
    }
    return {task: methods for task, methods in found.items() if len(next(iter(methods.values()))) > 1}


def _alike(outcomes: Outcomes, task: str) -> dict[str, dict[str, Estimate]]:
    if len(outcomes.agents) < 2:
        return {}
    moments: tuple[When, ...] = ("before", "after") if outcomes.has_before else ("after",)
    return {
        method: {when: _estimate(outcomes.alike(method, task, when)) for when in moments}
        for method in outcomes.plan.recipes
    }


def _estimate(values: Array) -> Estimate:
    return within_range(measure(values).interval())
