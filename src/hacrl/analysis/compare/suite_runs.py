"""`hacrl results`: run what a plan of experiments still lacks, and write its page from the outcomes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

from hacrl.analysis.compare.comparison import current_commit, with_dtypes
from hacrl.analysis.compare.data import DataFile, MadeWith, complete_part, data_file, leading_seeds
from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.page import Finished, machine, make_page
from hacrl.analysis.compare.plan import Plan, PlannedRun, forget_settings, write_plan
from hacrl.analysis.compare.readme import readme_picture, readme_text, with_table
from hacrl.analysis.compare.results import Experiment, make_results
from hacrl.analysis.compare.runner import run_all
from hacrl.analysis.compare.suite import Readme, Suite
from hacrl.analysis.compare.workers import WorkerPool
from hacrl.runs.files import make_directory, read_bytes, write_atomic

Experiments = dict[str, Experiment]
"""By setting."""
PICTURE = "readme.svg"


def run_suite(
    suite: Suite, out: Path, page: Path, pool: WorkerPool, again: Sequence[str] = ()
) -> Experiments:
    """Run what is not finished yet, then write the page and its other files.

    Outcomes are kept in `data_folder(page)` as soon as a run ends. Methods `again` are run anew.
    """
    plans = {setting: suite.plan(setting, out) for setting in suite.file.settings}
    files = {setting: data_file(data_folder(page), setting) for setting in plans}
    for setting, plan in plans.items():
        for method in again:
            _forget(plan, files[setting], method)
    run_missing(plans, files, pool, in_order(suite, plans))
    return write_page(suite, files, page)


def run_missing(
    plans: Mapping[str, Plan], files: Mapping[str, DataFile], pool: WorkerPool, order: Sequence[PlannedRun]
) -> None:
    """Run everything whose outcome is not known, in this order, and keep each outcome when its run ends."""
    for setting, plan in plans.items():
        files[setting].accept(plan)
        write_plan(plan, current_commit())
    commit, here = current_commit(), machine()
    file_of, runs = dict[str, DataFile](), dict[str, PlannedRun]()
    for setting, plan in plans.items():
        for run in with_dtypes(plan, files[setting].dtypes):
            file_of[run.name], runs[run.name] = files[setting], run

    def keep(run: PlannedRun) -> None:
        file_of[run.name].add(run, commit, here)

    missing = [runs[run.name] for run in order if not file_of[run.name].has(run)]
    for run in missing:
        if run.finished:  # its directory is there, but its outcome was not kept
            keep(run)
    run_all([run for run in missing if not run.finished], pool, keep)


def data_folder(page: Path) -> Path:
    """Where the outcomes behind a page are."""
    return page.with_suffix("") / "data"


def _forget(plan: Plan, file: DataFile, method: str) -> None:
    """Drop what is known about a method's runs."""
    file.forget(method)
    shutil.rmtree(plan.out / "runs" / method, ignore_errors=True)
    forget_settings(plan, method)


def in_order(suite: Suite, plans: Mapping[str, Plan]) -> list[PlannedRun]:
    """All runs. What the README shows comes first; then one seed of every setting and method after another.

    So a plan that is stopped has a balanced part, and the longer it ran the more seeds it has.
    """
    shown = suite.file.readme
    first = {} if shown is None else {s: _only(plans[s], shown.labels) for s in shown.settings}
    return list({run.name: run for runs in (by_seed(first), by_seed(plans)) for run in runs}.values())


def _only(plan: Plan, methods: Container[str]) -> Plan:
    return plan.part([method for method in plan.recipes if method in methods], plan.seeds)


def by_seed(plans: Mapping[str, Plan]) -> Iterator[PlannedRun]:
    """The first seed of every plan and method, then the second, and so on."""
    longest = max((len(plan.seeds) for plan in plans.values()), default=0)
    for number in range(longest):
        for plan in plans.values():
            for method in plan.recipes if number < len(plan.seeds) else ():
                yield plan.run(method, plan.seeds[number])


def page_from_data(suite: Suite, folder: Path, page: Path) -> Experiments:
    """Write the page from outcomes alone: nothing is run."""
    if not folder.is_dir():
        raise ValueError(f"--from {folder}: expected a directory of outcomes, as `hacrl results` writes it")
    files = {setting: data_file(folder, setting) for setting in suite.file.settings}
    for setting, file in files.items():
        file.accept(suite.plan(setting, Path()))
    return write_page(suite, files, page)


def write_page(suite: Suite, files: Mapping[str, DataFile], page: Path) -> Experiments:
    """From the complete part of every setting; the page says how much of the plan that is."""
    experiments, finished = complete_experiments(suite, files)
    made_with = {setting: files[setting].made_with(e.outcomes.plan) for setting, e in experiments.items()}
    made = make_page(suite, experiments, finished, made_with, page.stem)
    folder = page.with_suffix("")
    make_directory(folder)
    for name, text in made.files.items():
        write_atomic(folder / name, text.encode())
    write_atomic(page, made.text.encode())
    return experiments


def write_readme(suite: Suite, experiments: Experiments, page: Path, readme: Path) -> None:
    """Write the table and its picture, which is beside the page's other files, into the README."""
    shown = shown_in(suite, readme)
    if not any(setting in experiments for setting in shown.settings):
        raise ValueError(f"--readme {readme}: none of its settings is finished: {', '.join(shown.settings)}")
    picture = page.with_suffix("") / PICTURE
    write_atomic(picture, readme_picture(shown, experiments).encode())
    link = Path(os.path.relpath(picture, readme.parent)).as_posix()
    table = readme_text(shown, experiments, link)
    text = with_table(read_bytes(readme).decode(), table, suite.path.name, f"--readme {readme}")
    write_atomic(readme, text.encode())


def shown_in(suite: Suite, readme: Path) -> Readme:
    """What the README's table shows; `ValueError` if there is no table, or no place for it."""
    if suite.file.readme is None:
        raise ValueError(f"--readme {readme}: {suite.path} has no `readme`, which says what the table shows")
    with_table(read_bytes(readme).decode(errors="replace"), "", suite.path.name, f"--readme {readme}")
    return suite.file.readme


def complete_experiments(
    suite: Suite, files: Mapping[str, DataFile]
) -> tuple[Experiments, dict[str, Finished]]:
    """The complete part of every setting that has one; `ValueError` if none has."""
    experiments, finished = {}, {}
    for setting, file in files.items():
        plan = suite.plan(setting, Path())
        done = {(run.method, run.seed) for run in plan.runs() if file.has(run)}
        part = complete_part(plan, done)
        finished[setting] = Finished(len(done), len(plan.runs()), part)
        if part:
            leading = {method: leading_seeds(plan, method, done) for method in part.recipes}
            by_method = {m: file.outcomes(plan.part([m], seeds)) for m, seeds in leading.items()}
            experiments[setting] = _experiment(suite, setting, part, by_method, file.made_with(part))
    if not experiments:
        raise ValueError(
            f"{suite.path}: no setting has two finished seeds of any method; run the plan without --from"
        )
    return experiments, finished


def _experiment(
    suite: Suite, setting: str, part: Plan, by_method: Mapping[str, Outcomes], made: MadeWith
) -> Experiment:
    shown = len(part.seeds)
    outcomes = Outcomes(part, {method: own.summaries[method][:shown] for method, own in by_method.items()})
    references = [label for label in suite.references(setting) if label in part.recipes]
    return Experiment(outcomes, make_results(outcomes, references, made.versions, made.commits), by_method)
