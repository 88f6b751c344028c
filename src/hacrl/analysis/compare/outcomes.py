"""What the finished runs of a comparison measured, arranged for pairing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np

from hacrl.analysis.compare.besides import last_means
from hacrl.analysis.compare.plan import Plan, PlannedRun
from hacrl.analysis.compare.statistics import Array
from hacrl.runs.reader import RunReader
from hacrl.training.evaluation import MEASURES, Measure, Problems

When = Literal["before", "after"]
Summary = dict[str, Any]
PRIMARY: tuple[Measure, ...] = ("greedy", "pass_at_k")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The summaries of all runs of a plan."""

    plan: Plan
    summaries: dict[str, list[Summary]] = field(repr=False)
    """By method, in the order of the seeds."""

    @classmethod
    def read(cls, plan: Plan) -> Outcomes:
        """Of a plan whose runs are all finished, from their directories."""
        return cls(
            plan,
            {method: [read_run(plan.run(method, seed)) for seed in plan.seeds] for method in plan.recipes},
        )

    @property
    def first(self) -> Summary:
        """Any run's summary: agents and tasks are the same in all."""
        return next(iter(self.summaries.values()))[0]

    @property
    def agents(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.first["agents"])

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task trained on first, then the others."""
        return tuple(self.first["agents"][self.agents[0]]["after"])

    def measures(self, task: str) -> tuple[Measure, ...]:
        """Those that were asked for on a task."""
        return _measured(self.first["agents"][self.agents[0]]["after"][task])

    def curve_measures(self, task: str) -> tuple[Measure, ...]:
        """Those of the evaluations during the runs, all of them; none if there were no such evaluations."""
        agent = self.agents[0]
        found = [
            {measure for points in run["during"].values() for measure in _measured(points[agent][task])}
            for runs in self.summaries.values()
            for run in runs
        ]
        return tuple(m for m in self.measures(task) if all(m in measures for measures in found))

    @property
    def primary(self) -> tuple[Measure, ...]:
        """What claims are about: sampling more often right by being more certain is not enough for these."""
        return tuple(measure for measure in self.measures(self.tasks[0]) if measure in PRIMARY)

    @property
    def units(self) -> list[list[int]]:
        """The positions of the seeds behind each independent result.

        With several bases the seeds of one base are averaged: two runs from the same weights say less about
        other weights than two runs from different ones.
        """
        bases = [self.plan.base(seed) for seed in self.plan.seeds]
        if len(set(bases)) < 2:
            return [[position] for position in range(len(bases))]
        return [[i for i, base in enumerate(bases) if base == one] for one in dict.fromkeys(bases)]

    def _by_unit(self, values: Array, axis: int) -> Array:
        """Means over the seeds of a unit, along the axis of seeds."""
        return np.stack([values.take(unit, axis=axis).mean(axis=axis) for unit in self.units], axis=axis)

    @property
    def has_before(self) -> bool:
        """Whether the agents were measured before the first step."""
        return bool(self.before)

    @property
    def before(self) -> list[Summary]:
        """By seed, runs that measured the agents before the first step; empty if some seed has none.

        The agents of a seed are the same under every method then: one method's runs are enough.
        """
        agent = self.agents[0]
        measured = [
            [summary for summary in summaries if summary["agents"][agent]["before"]]
            for summaries in zip(*self.summaries.values(), strict=True)
        ]
        return [found[0] for found in measured] if all(measured) else []

    def correct(self, method: str, task: str, measure: Measure) -> Array:
        """Outcomes [agent, unit, problem]; not a number where a response could not be scored."""
        return self._column(self.summaries[method], task, measure, "after")

    def _column(self, runs: Sequence[Summary], task: str, column: str, when: When) -> Array:
        found = [
            [run["agents"][agent][when][task]["problems"][column] for run in runs] for agent in self.agents
        ]
        return self._by_unit(np.array(found, dtype=float), axis=1)

    def entropy(self, method: str, task: str, when: When) -> Array | None:
        """[unit, problem] of the mean of the agents, in nats; None if nothing was sampled."""
        runs = self.before if when == "before" else self.summaries[method]
        if runs[0]["agents"][self.agents[0]][when][task]["problems"].get("entropy") is None:
            return None
        return np.asarray(self._column(runs, task, "entropy", when).mean(axis=0))

    def by_kind(self, method: str, task: str, when: When) -> dict[str, dict[str, float]]:
        """Kind of prompt -> agent -> greedy accuracy, mean over seeds."""
        runs = self.before if when == "before" else self.summaries[method]
        found = {
            agent: [run["agents"][agent][when][task]["greedy_by_kind"] for run in runs]
            for agent in self.agents
        }
        kinds = self.first["agents"][self.agents[0]]["after"][task]["greedy_by_kind"]
        return {
            kind: {
                agent: float(np.mean([each[kind]["mean"] for each in of_runs]))
                for agent, of_runs in found.items()
            }
            for kind in kinds
        }

    def scored(self, task: str, measure: Measure) -> dict[str, Array]:
        """By method, "" before training: [agent, unit, problem] of the problems that all runs could score."""
        correct = {method: self.correct(method, task, measure) for method in self.plan.recipes}
        if self.has_before:
            correct[""] = self._column(self.before, task, measure, "before")
        scored = ~np.any([np.isnan(values).any(axis=(0, 1)) for values in correct.values()], axis=0)
        if not scored.any():
            raise ValueError(f"{task}: no problem was scored in every run; look at the verifier")
        return {method: values[:, :, scored] for method, values in correct.items()}

    def problems(self, task: str, measure: Measure) -> int:
        """How many there are."""
        return len(self.first["agents"][self.agents[0]]["after"][task]["problems"][measure])

    def alike(self, method: str, task: str, when: When) -> Array:
        """[unit, problem]: the share of pairs of agents that give the same greedy response."""
        found = [
            [summary["agents"][agent][when][task]["problems"] for agent in self.agents]
            for summary in (self.before if when == "before" else self.summaries[method])
        ]
        responses = np.array([[Problems.from_dict(each).responses for each in run] for run in found])
        pairs = combinations(range(len(self.agents)), 2)
        same = np.array([responses[:, one] == responses[:, other] for one, other in pairs], dtype=float)
        return self._by_unit(same.mean(axis=0), axis=0)

    def cost(self, method: str, key: str) -> float:
        """Mean over seeds of a run's steps or CPU seconds per agent; over agents too of what they count."""
        summaries = self.summaries[method]
        if key in ("steps", "cpu_seconds"):
            of_run = float(np.mean([summary[key] for summary in summaries]))
            return of_run if key == "steps" else of_run / len(self.agents)
        return float(np.mean([[agent[key] for agent in summary["agents"].values()] for summary in summaries]))

    def retired(self) -> list[str]:
        """Agents that stopped taking part, and why."""
        return [
            f"{method}, seed {seed}: {agent['retired']}"
            for method, summaries in self.summaries.items()
            for seed, summary in zip(self.plan.seeds, summaries, strict=True)
            for agent in summary["agents"].values()
            if agent["retired"]
        ]

    def curve(self, method: str, task: str, measure: Measure) -> tuple[list[int], Array]:
        """Steps of the evaluations and their outcomes [evaluation, unit, problem], the mean over agents.

        The evaluations before the first step and after the last are among them.
        """
        points: list[dict[int, Array]] = []
        for number, summary in enumerate(self.summaries[method]):
            evaluated = dict(summary["during"])
            evaluated[summary["steps"]] = {name: kept["after"] for name, kept in summary["agents"].items()}
            if self.has_before:
                first = self.before[number]["agents"]
                evaluated[0] = {name: kept["before"] for name, kept in first.items()}
            points.append(
                {step: self._mean_of_agents(agents, task, measure) for step, agents in evaluated.items()}
            )
        order = sorted(points[0])
        found = np.array([[seed[step] for seed in points] for step in order])
        return order, self._by_unit(found, axis=1)

    def _mean_of_agents(self, evaluations: Summary, task: str, measure: Measure) -> Array:
        outcomes = [evaluations[agent][task]["problems"][measure] for agent in self.agents]
        return np.asarray(np.array(outcomes, dtype=float).mean(axis=0))


def _measured(evaluation: Summary) -> tuple[Measure, ...]:
    return tuple(measure for measure in MEASURES if evaluation.get(measure) is not None)


def read_run(run: PlannedRun) -> Summary:
    """The summary of a finished run, with evaluations `during` the run by step, and its last `metrics`."""
    reader = RunReader(run.directory.path)
    summary, every = reader.final_summary, run.recipe.evaluation.every
    steps = range(every, summary["steps"], every) if every else ()
    during = {step: reader.evaluation(step) for step in steps}
    return {**summary, "during": during, "metrics": last_means(reader.metrics)}


def same_problems(outcomes: Outcomes) -> None:
    """Refuse runs that were tested on different problems: they cannot be paired."""
    for task in outcomes.tasks:
        asked = {
            tuple(summary["agents"][agent]["after"][task]["problems"]["ids"])
            for summaries in outcomes.summaries.values()
            for summary in summaries
            for agent in outcomes.agents
        }
        if len(asked) > 1:
            raise ValueError(
                f"the runs in {outcomes.plan.out} were tested on different problems of {task}: "
                "the task has changed since the first of them; compare in a new --out"
            )
