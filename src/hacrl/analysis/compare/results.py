"""The results of a comparison: estimates, differences with their verdicts, budgets, curves, diversity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hacrl.analysis.compare.besides import besides
from hacrl.analysis.compare.outcomes import Outcomes, When, same_problems
from hacrl.analysis.compare.statistics import (
    Array,
    Difference,
    Estimate,
    Table,
    measure,
    tabulate,
    verdict_of,
    within_range,
)
from hacrl.training.evaluation import Measure

COSTS = ("steps", "rollouts", "generated_tokens", "trained_tokens", "updates", "cpu_seconds")

BUDGET = ("rollouts", "updates", "trained_tokens")
"""What two methods must have in common to have equal budgets."""
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Accuracy:
    """All methods in one measure on one task."""

    task: str
    measure: Measure
    problems: int
    left_out: int
    """Problems that some run could not score; they are left out for all methods."""
    mean: Table
    """Mean of the agents."""
    worst: Table
    """The agent that is worst in each run."""
    agents: dict[str, dict[str, Estimate]]
    """By agent and method."""
    before: dict[str, Estimate]
    """Before training: `mean`, `worst` and every agent."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Accuracy at equal cost: the total cost of the cheapest method."""

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
    many: int
    """The large k of pass@k."""
    versions: dict[str, str]
    commits: list[str]
    budgets: dict[str, dict[str, float]]
    """By method, per agent: means over seeds and agents."""
    accuracies: list[Accuracy]
    curves: list[Curves]
    """Empty unless the recipe evaluates during the run."""
    by_kind: dict[str, dict[str, dict[str, dict[str, float]]]]
    """Greedy accuracy by task, method (first `before training`), kind of prompt and agent; only of tasks with
    several kinds."""
    alike: dict[str, dict[str, Estimate]]
    """By method, `before` and `after`: share of problems with the same greedy response of two agents."""
    entropy: dict[str, dict[str, Estimate]]
    """By method, `before` and `after`: of a sampled response to the trained task, in nats."""
    besides: dict[str, dict[str, dict[str, float]]]
    """By method, agent and measure: what training did besides."""
    retired: list[str]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A setting's finished runs and their results."""

    outcomes: Outcomes
    """The same seeds of every method."""
    results: Results
    by_method: Mapping[str, Outcomes] = field(default_factory=dict)
    """Methods of a plan that was stopped may have more seeds than all have in common."""

    def pair(self, one: str, other: str) -> Outcomes:
        """Two methods with every seed that both have."""
        found = [self.by_method.get(method, self.outcomes) for method in (one, other)]
        seeds = min((outcomes.plan.seeds for outcomes in found), key=len)
        return Outcomes(
            self.outcomes.plan.part([one, other], seeds),
            {m: o.summaries[m][: len(seeds)] for m, o in zip((one, other), found, strict=True)},
        )

    def accuracy(self, task: str, kind: Measure) -> Accuracy | None:
        """All methods in a measure; None if it was not taken."""
        return next((a for a in self.results.accuracies if (a.task, a.measure) == (task, kind)), None)

    def difference(self, task: str, method: str, reference: str, kind: Measure) -> Difference | None:
        """Of the mean of the agents; None if one of them was not run or measured."""
        accuracy = self.accuracy(task, kind)
        for contrast in accuracy.mean.contrasts if accuracy else ():
            if (contrast.method, contrast.reference) == (method, reference):
                return contrast.difference
            if (contrast.method, contrast.reference) == (reference, method):
                return _mirrored(contrast.difference)  # each pair of references is compared once
        return None


def equal_budgets(results: Results, one: str, other: str, costs: Sequence[str] = BUDGET) -> bool:
    """Whether two methods cost the same per agent, within `TOLERANCE`."""
    pairs = ((results.budgets[one][cost], results.budgets[other][cost]) for cost in costs)
    return all(abs(a - b) <= TOLERANCE * max(abs(b), 1e-9) for a, b in pairs)


def _mirrored(difference: Difference) -> Difference:
    found = difference.interval
    interval = Estimate(-found.mean, -found.high, -found.low, found.level)
    return replace(difference, interval=interval, verdict=verdict_of(interval))


def make_results(
    outcomes: Outcomes, references: Sequence[str], versions: dict[str, str], commits: list[str]
) -> Results:
    """All tables of a finished comparison."""
    same_problems(outcomes)
    plan, first = outcomes.plan, outcomes.first
    task, agent = outcomes.tasks[0], outcomes.agents[0]
    wanted = [(task, kind) for task in outcomes.tasks for kind in outcomes.measures(task)]
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
        many=first["agents"][agent]["after"][task].get("many", 0),
        versions=versions,
        commits=commits,
        budgets={m: {key: outcomes.cost(m, key) for key in COSTS} for m in plan.recipes},
        accuracies=accuracies,
        curves=[
            draw_curves(outcomes, accuracy.task, accuracy.measure, references)
            for accuracy in accuracies
            if evaluated_during_runs and accuracy.measure in outcomes.curve_measures(accuracy.task)
        ],
        by_kind=_by_kind(outcomes),
        alike=_alike(outcomes, task),
        entropy=_entropy(outcomes, task),
        besides=besides(outcomes),
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
        left_out=outcomes.problems(task, kind) - problems,
        mean=tabulate({method: values.mean(axis=0) for method, values in correct.items()}, references),
        worst=tabulate({method: _worst(values) for method, values in correct.items()}, references),
        agents={
            agent: {method: _estimate(values[number]) for method, values in correct.items()}
            for number, agent in enumerate(outcomes.agents)
        },
        before={} if before is None else _summaries(before, outcomes.agents),
    )


def _worst(correct: Array) -> Array:
    """[unit, problem]: the outcomes of the agent that is worst with that seed."""
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
    found = {}
    for task in outcomes.tasks:
        before = {"before training": outcomes.by_kind("", task, "before")} if outcomes.has_before else {}
        after = {method: outcomes.by_kind(method, task, "after") for method in outcomes.plan.recipes}
        found[task] = before | after
    return {task: methods for task, methods in found.items() if len(next(iter(methods.values()))) > 1}


def _alike(outcomes: Outcomes, task: str) -> dict[str, dict[str, Estimate]]:
    if len(outcomes.agents) < 2:
        return {}
    return {
        method: {when: _estimate(outcomes.alike(method, task, when)) for when in _moments(outcomes)}
        for method in outcomes.plan.recipes
    }


def _entropy(outcomes: Outcomes, task: str) -> dict[str, dict[str, Estimate]]:
    found: dict[str, dict[str, Estimate]] = {}
    for method in outcomes.plan.recipes:
        for when in _moments(outcomes):
            values = outcomes.entropy(method, task, when)
            if values is not None:
                found.setdefault(method, {})[when] = measure(values).interval()
    return found


def _moments(outcomes: Outcomes) -> tuple[When, ...]:
    return ("before", "after") if outcomes.has_before else ("after",)


def _estimate(values: Array) -> Estimate:
    return within_range(measure(values).interval())


def draw_curves(outcomes: Outcomes, task: str, kind: Measure, references: Sequence[str]) -> Curves:
    """The curves of all methods; linear between two evaluations."""
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
    """[unit, problem]: the mean height of each curve."""
    if len(share) == 1:
        return np.asarray(values[0])
    heights = (values[1:] + values[:-1]) / 2
    return np.asarray(np.tensordot(np.diff(share), heights, axes=1) / (share[-1] - share[0]))


def _at_equal(costs: dict[str, Array], curves: dict[str, Array], references: Sequence[str]) -> Budget:
    budget = min(float(cost[-1]) for cost in costs.values())
    values = {method: _at(budget, costs[method], curves[method]) for method in curves}
    return Budget(budget, tabulate(values, references))


def _at(budget: float, cost: Array, values: Array) -> Array:
    """[unit, problem]: the curves' height at a cost."""
    position = float(np.interp(budget, cost, np.arange(len(cost))))
    below = min(int(position), len(cost) - 1)
    above = min(below + 1, len(cost) - 1)
    return np.asarray(values[below] + (position - below) * (values[above] - values[below]))


def _first_at(cost: Array, curve: Array, goal: float) -> float | None:
    """The cost at which the curve first reaches the goal."""
    above = np.flatnonzero(curve >= goal)
    if not len(above):
        return None
    end = int(above[0])
    if end == 0:
        return float(cost[0])
    return float(np.interp(goal, curve[end - 1 : end + 1], cost[end - 1 : end + 1]))
