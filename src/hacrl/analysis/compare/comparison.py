"""A whole comparison: plan, runs, results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.places import Place
from hacrl.analysis.compare.plan import Plan, write_plan
from hacrl.analysis.compare.processes import carry_out
from hacrl.analysis.compare.report import report
from hacrl.analysis.compare.results import Results, make_results
from hacrl.runs.files import write_atomic, write_json

USUAL_REFERENCES = ("gspo", "gspo_x2")


class RunsFailed(Exception):
    """Some runs of a comparison ended without a result; the message tells which and why."""


def run_comparison(plan: Plan, references: Sequence[str], place: Place) -> Results:
    """Carry out what is not finished yet, then write `results.json` and `results.md`."""
    references = choose_references(references, plan)
    [commits] = carry_out_plans([plan], place)
    return write_results(plan, references, commits)


def carry_out_plans(plans: Sequence[Plan], place: Place) -> list[list[str]]:
    """Finish all runs of several comparisons side by side; returns the commits each was made with."""
    commits = [write_plan(plan, current_commit()) for plan in plans]
    runs = [run for plan in plans for run in plan.runs()]
    failures = carry_out(runs, place)
    if failures:
        reasons = "\n".join(f"  {name} {reason}" for name, reason in failures.items())
        raise RunsFailed(
            f"{len(failures)} of {len(runs)} runs failed. There are no results without them: mend the "
            f"cause and repeat the command, which goes on where each run was.\n{reasons}"
        )
    return commits


def write_results(plan: Plan, references: Sequence[str], commits: list[str]) -> Results:
    """The results of a plan whose runs are all finished, also as files beside them."""
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
    """Of the checkout hacrl runs from, `-dirty` if it was changed since; None for an installed package."""
    is_ours = _git("ls-files", Path(__file__).name)  # not of a repository that only surrounds the package
    return _git("describe", "--always", "--dirty", "--abbrev=12") if is_ours else None


def _git(*arguments: str) -> str | None:
    folder = str(Path(__file__).parent)
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True)  # noqa: S603, S607
    except OSError:
        return None
    return done.stdout.strip() or None


def _versions(plan: Plan) -> dict[str, str]:
    """Of the first run's packages, as it wrote them down itself."""
    config = json.loads(plan.runs()[0].directory.config.read_text())
    versions: dict[str, str] = config["versions"]
    return versions
