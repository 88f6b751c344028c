"""`hacrl report`: a run as one web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="Directory of the run.", show_default=False)],
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A run of the same agents alone to show beside it.",
            show_default="a gspo run with the same agents, task and seed in the directories around it",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(show_default="RUN/report.html", help="File to write.")] = None,
) -> None:
    """Write a run's report: one HTML file that opens offline, with plots and a browser of responses."""
    from hacrl.cli.common import user_errors

    with user_errors():
        from hacrl.analysis.report import write_report

        typer.echo(write_report(run, out, baseline))
