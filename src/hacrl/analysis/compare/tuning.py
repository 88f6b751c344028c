"""Each method's own values, chosen on seeds and test prompts that are not reported."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import yaml

from hacrl.analysis.compare.comparison import carry_out_plans
from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.places import Place
from hacrl.analysis.compare.plan import Plan, recipes_of
from hacrl.analysis.compare.suite import TUNED, Changes, Suite
from hacrl.runs.files import write_atomic


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of values of a method."""

    method: str
    values: Changes

    @property
    def label(self) -> str:
        """As its runs are called."""
        return "-".join(
            [self.method, *(f"{key.split('.')[-1]}-{value}" for key, value in self.values.items())]
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """All trials of a setting."""

    plan: Plan
    trials: list[Trial]


def tune(suite: Suite, out: Path, place: Place) -> Path:
    """Run all sweeps and write down the best values by sampled accuracy; returns the file."""
    sweeps = sweeps_of(suite, out)
    carry_out_plans([sweep.plan for sweep in sweeps.values()], place)
    chosen = {setting: _best(sweep) for setting, sweep in sweeps.items()}
    path = suite.path.parent / TUNED
    heading = (
        f"# Written by `hacrl results {suite.path} --tune`: what was best with the plan's tuning seeds.\n"
    )
    write_atomic(path, (heading + yaml.safe_dump(chosen, sort_keys=False)).encode())
    return path


def sweeps_of(suite: Suite, out: Path) -> dict[str, Sweep]:
    """By setting; settings that run none of the swept methods are left out."""
    tuning = suite.file.tuning
    if tuning is None:
        raise ValueError(f"{suite.path}: tuning: missing; it names seeds and sweeps")
    sweeps = {}
    for setting in suite.file.settings:
        methods = suite.variants(setting)
        trials = [
            Trial(method, dict(zip(sweep, values, strict=True)))
            for method, sweep in tuning.sweeps.items()
            if method in methods
            for values in product(*sweep.values())
        ]
        variants = {trial.label: methods[trial.method].with_settings(trial.values) for trial in trials}
        recipe = suite.recipe(setting, tuning.changes)
        recipes = recipes_of(recipe, variants, f"{suite.path}, tuning {setting}")
        if trials:
            folder = out / "tuning" / setting
            sweeps[setting] = Sweep(Plan(folder, recipes, tuning.seeds, f"tuning/{setting}"), trials)
    return sweeps


def _best(sweep: Sweep) -> dict[str, Changes]:
    """By method, the values with the highest accuracy in the main measure."""
    outcomes = Outcomes.read(sweep.plan)
    scored = outcomes.scored(outcomes.tasks[0], outcomes.main_measure)
    best: dict[str, Trial] = {}
    for trial in sweep.trials:
        current = best.setdefault(trial.method, trial)
        if scored[trial.label].mean() > scored[current.label].mean():
            best[trial.method] = trial
    return {method: trial.values for method, trial in best.items()}
