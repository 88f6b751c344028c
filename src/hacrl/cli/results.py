"""`hacrl results`: all experiments of a plan, and the page about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.options import ClusterAddress, Jobs, RunsWhere


def results(
    plan: Annotated[Path, typer.Argument(help="The plan, a YAML file.", show_default=False)],
    tune: Annotated[
        bool, typer.Option("--tune", help="Run the plan's sweeps instead and write tuned.yaml beside it.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Directory of the comparisons.")] = Path("runs/results"),
    page: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/results.md"),
    jobs: Jobs = None,
    runtime: RunsWhere = "local",
    address: ClusterAddress = None,
) -> None:
    """Run every comparison of a plan of experiments and write the page of results.

    Repeat the command to go on where it was stopped: finished runs are not repeated.
    """
    from hacrl.cli.errors import user_errors

    with user_errors():
        from hacrl.analysis.compare.assembly import run_suite
        from hacrl.analysis.compare.comparison import RunsFailed
        from hacrl.analysis.compare.places import Place
        from hacrl.analysis.compare.processes import Interrupted
        from hacrl.analysis.compare.suite import load_suite
        from hacrl.analysis.compare.tuning import tune as run_sweeps

        place = Place(runtime, jobs, address)
        suite = load_suite(plan)
        try:
            if tune:
                written = run_sweeps(suite, out, place)
            else:
                run_suite(suite, out, page, place)
                written = page
        except Interrupted as stopped:
            typer.echo("Stopped; every run is saved. Go on with the same command.", err=True)
            raise typer.Exit(128 + stopped.signal) from None
        except RunsFailed as failed:
            typer.echo(f"error: {failed}", err=True)
            raise typer.Exit(1) from None
    typer.echo(f"Written to {written}")
