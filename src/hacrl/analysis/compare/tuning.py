"""Tuning: as many trials for every method, on development seeds; the best by greedy accuracy is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import JsonValue

from hacrl.analysis.compare.data import DataFile, data_file
from hacrl.analysis.compare.plan import Plan, plan_of
from hacrl.analysis.compare.suite import Changes, Suite, Tuning, edges
from hacrl.analysis.compare.suite_runs import by_seed, run_missing
from hacrl.analysis.compare.workers import WorkerPool
from hacrl.runs.files import write_atomic

Scores = dict[str, float]
"""Greedy accuracy by the label of a trial."""
Chosen = dict[str, dict[str, Changes]]
"""Setting -> method -> its best values."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of values of a tuned method."""

    method: str
    values: Changes

    @property
    def label(self) -> str:
        """The label of its runs."""
        return "-".join(
            [self.method, *(f"{key.split('.')[-1]}-{value}" for key, value in self.values.items())]
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """All trials of a setting, on seeds and test prompts that are not reported."""

    plan: Plan
    trials: list[Trial]


def tune(suite: Suite, out: Path, data: Path, pool: WorkerPool) -> Path:
    """Run all sweeps and write the best values by greedy accuracy to a file; returns its path.

    A method's keys are tuned one after another, each with the best values of those before it. Outcomes are
    kept in `data`, as those of the plan itself.
    """
    tuning, chosen, lines = _tuning(suite), Chosen(), list[str]()
    for number in range(max(map(len, tuning.sweeps.values()), default=0)):
        sweeps = sweeps_of(suite, out, number, chosen)
        files = {setting: data_file(data, f"tuning-{setting}") for setting in sweeps}
        plans = {setting: sweep.plan for setting, sweep in sweeps.items()}
        run_missing(plans, files, pool, list(by_seed(plans)))
        scores = {setting: _scores(sweep, files[setting]) for setting, sweep in sweeps.items()}
        for setting, best in choose(suite, sweeps, scores).items():
            chosen.setdefault(setting, {}).update(best)
        lines += [
            f"{setting}, {label}: {score:.3f}"
            for setting, found in scores.items()
            for label, score in found.items()
        ]
    heading = [
        f"Written by `hacrl results {suite.path} --tune`: the best values on the plan's tuning seeds.",
        *dict.fromkeys(lines),
        *edges(tuning, chosen),
    ]
    text = "".join(f"# {line}\n" for line in heading) + yaml.safe_dump(chosen, sort_keys=False)
    write_atomic(suite.tuned_path, text.encode())
    return suite.tuned_path


def sweeps_of(suite: Suite, out: Path, number: int = 0, chosen: Chosen | None = None) -> dict[str, Sweep]:
    """The trials of every method's key of that number, by setting.

    The keys before it have the values chosen so far, those after it their first ones. Settings that run none
    of the methods that have such a key are left out.
    """
    tuning = _tuning(suite)
    sweeps = {}
    for setting in tuning.settings or suite.file.settings:
        methods, best = suite.variants(setting), (chosen or {}).get(setting, {})
        trials = [
            Trial(method, {**_firsts(sweep), **best.get(method, {}), key: value})
            for method, sweep in tuning.sweeps.items()
            if method in methods
            for key in list(sweep)[number : number + 1]
            for value in sweep[key]
        ]
        plan = plan_of(
            suite.recipe(setting, tuning.changes),
            {trial.label: methods[trial.method].with_settings(trial.values) for trial in trials},
            tuning.seeds,
            out / "tuning" / setting,
            where=f"{suite.path}, tuning {setting}",
            name=f"tuning/{setting}",
        )
        if trials:
            sweeps[setting] = Sweep(plan, trials)
    return sweeps


def _firsts(sweep: Mapping[str, Sequence[JsonValue]]) -> Changes:
    return {key: values[0] for key, values in sweep.items()}


def _tuning(suite: Suite) -> Tuning:
    if suite.file.tuning is None:
        raise ValueError(f"{suite.path}: tuning: missing; it names seeds and sweeps")
    return suite.file.tuning


def _scores(sweep: Sweep, file: DataFile) -> Scores:
    outcomes = file.outcomes(sweep.plan)
    scored = outcomes.scored(outcomes.tasks[0], "greedy")
    return {trial.label: float(scored[trial.label].mean()) for trial in sweep.trials}


def choose(suite: Suite, sweeps: Mapping[str, Sweep], scores: Mapping[str, Scores]) -> Chosen:
    """The best of the trials of every method.

    If the plan names settings to tune on, the best on average over them holds for all settings.
    """
    if not _tuning(suite).settings:
        return {setting: _best(sweep.trials, [scores[setting]]) for setting, sweep in sweeps.items()}
    trials = list({trial.label: trial for sweep in sweeps.values() for trial in sweep.trials}.values())
    best = _best(trials, list(scores.values()))
    return {
        setting: {
            method: dict(values) for method, values in best.items() if method in suite.variants(setting)
        }
        for setting in suite.file.settings
    }


def _best(trials: Sequence[Trial], scores: Sequence[Scores]) -> dict[str, Changes]:
    """By method, the values with the highest mean score; of equal ones the first."""
    best: dict[str, tuple[float, Changes]] = {}
    for trial in trials:
        found = [one[trial.label] for one in scores if trial.label in one]
        score = sum(found) / len(found)
        if trial.method not in best or score > best[trial.method][0]:
            best[trial.method] = (score, trial.values)
    return {method: values for method, (_, values) in best.items()}
