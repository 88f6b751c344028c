"""All experiments of a plan and the page about them."""

from __future__ import annotations

from pathlib import Path

from hacrl.analysis.compare.comparison import carry_out_plans, write_results
from hacrl.analysis.compare.experiment import Experiment
from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.page import make_page
from hacrl.analysis.compare.places import Place
from hacrl.analysis.compare.suite import Suite
from hacrl.runs.files import make_directory, write_atomic


def run_suite(suite: Suite, out: Path, page: Path, place: Place) -> None:
    """Carry out what is not finished yet, then write the page, and its other files in a folder beside it."""
    plans = {setting: suite.plan(setting, out) for setting in suite.file.settings}
    commits = carry_out_plans(list(plans.values()), place)
    experiments = {
        setting: Experiment(Outcomes.read(plan), write_results(plan, suite.references(setting), made_with))
        for (setting, plan), made_with in zip(plans.items(), commits, strict=True)
    }
    made = make_page(suite, experiments, page.stem)
    folder = page.with_suffix("")
    make_directory(folder)
    for name, text in made.files.items():
        write_atomic(folder / name, text.encode())
    write_atomic(page, made.text.encode())
