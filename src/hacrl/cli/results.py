"""`hacrl results`: all experiments of a plan, and the page about them."""

from __future__ import annotations

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
    writable_page,
)


def results(
    plan: Annotated[Path, typer.Argument(help="The plan, a YAML file.", show_default=False)],
    tune: Annotated[
        bool, typer.Option("--tune", help="Run the plan's sweeps instead and write tuned.yaml beside it.")
    ] = False,
    out: Annotated[
        Path, typer.Option(callback=writable_directory, help="Directory of the comparisons.")
    ] = Path("runs/results"),
    page: Annotated[Path, typer.Option(callback=writable_page, help="The page to write.")] = Path(
        "docs/results.md"
    ),
    jobs: Jobs = None,
    runtime: RunsWhere = "local",
    address: ClusterAddress = None,
) -> None:
    """Run every comparison of a plan of experiments and write the page of results.

    Repeat the command to continue after a stop: finished runs are not repeated.
    """
    with comparison_errors():
        from hacrl.analysis.compare import comparison
        from hacrl.analysis.compare.suite import load_suite
        from hacrl.analysis.compare.workers import WorkerPool

        pool = WorkerPool(runtime, jobs, address)
        suite = load_suite(plan)
        if tune:
            written = comparison.tune(suite, out, pool)
        else:
            comparison.run_suite(suite, out, page, pool)
            written = page
    say(f"Written to {written}")
