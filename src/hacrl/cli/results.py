"""`hacrl results`: all experiments of a plan, and the page about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.common import (
    ClusterAddress,
    Jobs,
    RunsWhere,
    comparison_errors,
    say,
    writable_directory,
    writable_file,
    writable_page,
)


def results(
    plan: Annotated[Path, typer.Argument(help="The plan, a YAML file.", show_default=False)],
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Run the plan's sweeps instead and write PLAN.tuned.yaml beside it."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIRECTORY", help="Run nothing: make the page from the outcomes there."
        ),
    ] = None,
    again: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help="Run this method again and drop its outcomes (may be repeated)."),
    ] = None,
    out: Annotated[
        Path, typer.Option(callback=writable_directory, help="Directory of the comparisons.")
    ] = Path("runs/results"),
    page: Annotated[Path, typer.Option(callback=writable_page, help="The page to write.")] = Path(
        "docs/results.md"
    ),
    readme: Annotated[
        Path | None, typer.Option(callback=writable_file, help="A README: renew its table between the marks.")
    ] = None,
    jobs: Jobs = None,
    runtime: RunsWhere = "local",
    address: ClusterAddress = None,
) -> None:
    """Run every comparison of a plan of experiments and write the page of results.

    The outcome of every run is kept in data/ beside the page's other files. Repeat the command to continue
    after a stop, here or on another machine that has these files: finished runs are not repeated.
    """
    with comparison_errors():
        from hacrl.analysis.compare import suite_runs, tuning
        from hacrl.analysis.compare.suite import load_suite
        from hacrl.analysis.compare.workers import WorkerPool

        pool = WorkerPool(runtime, jobs, address)
        suite = load_suite(plan)
        written = page
        if readme is not None:
            suite_runs.shown_in(suite, readme)  # before hours of work
        if tune:
            written = tuning.tune(suite, out, suite_runs.data_folder(page), pool)
        else:
            if data is not None:
                found = suite_runs.page_from_data(suite, data, page)
            else:
                again = _known(again or (), suite.file.methods)
                found = suite_runs.run_suite(suite, out, page, pool, again)
            if readme is not None:
                suite_runs.write_readme(suite, found, page, readme)
    say(f"Written to {written}")


def _known(again: Sequence[str], methods: Iterable[str]) -> list[str]:
    for method in again:
        if method not in methods:
            raise ValueError(f"--again {method}: expected one of {', '.join(methods)}")
    return list(again)
