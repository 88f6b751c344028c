"""`hacrl compare`: run the comparison of one recipe and write its results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.plan import Plan, PlannedRun, write_plan
from hacrl.analysis.compare.report import report
from hacrl.analysis.compare.results import Results, make_results
from hacrl.analysis.compare.runner import run_all
from hacrl.analysis.compare.workers import WorkerPool
from hacrl.runs.files import write_atomic, write_json
from hacrl.runs.json_files import read_json
from hacrl.training.team_setup import choose_dtypes

USUAL_REFERENCES = ("gspo", "gspo_x2")


def run_comparison(plan: Plan, references: Sequence[str], pool: WorkerPool) -> Results:
    """Run what is not finished yet, then write `results.json` and `results.md`."""
    references = choose_references(references, plan)
    [commits] = run_plans([plan], pool)
    return write_results(plan, references, commits)


def run_plans(plans: Sequence[Plan], pool: WorkerPool) -> list[list[str]]:
    """Finish all runs of several comparisons in parallel; returns the commits each was made with."""
    commits = [write_plan(plan, current_commit()) for plan in plans]
    run_all([run for plan in plans for run in with_dtypes(plan)], pool)
    return commits


def with_dtypes(plan: Plan, earlier: Mapping[str, str] | None = None) -> list[PlannedRun]:
    """A plan's runs. An agent with `dtype: auto` has one dtype in all of them, those begun earlier too."""
    runs, known = plan.runs(), dict(earlier or {})
    for run in runs:
        if run.begun:
            recorded = read_json(run.directory.config).get("dtypes", {})
            automatic = [agent.name for agent in run.recipe.agents if agent.dtype == "auto"]
            known |= {name: recorded[name] for name in automatic if name in recorded}
    return [replace(run, dtypes=choose_dtypes(run.recipe, known)) for run in runs]


def write_results(plan: Plan, references: Sequence[str], commits: list[str]) -> Results:
    """The results of a plan whose runs are all finished; also written to files in its directory."""
    results = make_results(Outcomes.read(plan), references, _versions(plan), commits)
    write_json(plan.out / "results.json", asdict(results))
    write_atomic(plan.out / "results.md", report(results).encode())
    return results


def choose_references(asked: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """Those asked for; else the usual ones that take part; else the first method."""
    for reference in asked:
        if reference not in plan.recipes:
            raise ValueError(f"--reference {reference}: expected one of {', '.join(plan.recipes)}")
    usual = tuple(reference for reference in USUAL_REFERENCES if reference in plan.recipes)
    return tuple(dict.fromkeys(asked)) or usual or (next(iter(plan.recipes)),)


def current_commit() -> str | None:
    """Of the checkout that hacrl runs from, `-dirty` if it has changes; None for an installed package."""
    is_ours = _git("ls-files", Path(__file__).name)  # not of a repository that merely contains the package
    return _git("describe", "--always", "--dirty", "--abbrev=12") if is_ours else None


def _git(*arguments: str) -> str | None:
    folder = str(Path(__file__).parent)
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True)  # noqa: S603, S607
    except OSError:
        return None
    return done.stdout.strip() or None


def _versions(plan: Plan) -> dict[str, str]:
    """Package versions, from the first run's config.json."""
    config = json.loads(plan.runs()[0].directory.config.read_text())
    versions: dict[str, str] = config["versions"]
    return versions
