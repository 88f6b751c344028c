"""`hacrl report` and `hacrl watch`: a run as a web page, written to a file or served while it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.common import say, user_errors, writable_file


def report(
    run: Annotated[Path, typer.Argument(help="Directory of the run.", show_default=False)],
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A run of the same agents alone to show beside it.",
            show_default="a gspo run with the same agents, task and seed in the directories around it",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(callback=writable_file, show_default="RUN/report.html", help="File to write."),
    ] = None,
) -> None:
    """Write a run's report: one HTML file that opens offline, with plots and a browser of responses."""
    with user_errors():
        from hacrl.analysis.report import write_report

        say(str(write_report(run, out, baseline)))


def watch(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Directories of runs.", show_default=False)
    ],
    baseline: Annotated[
        Path | None, typer.Option(help="A run of the same agents alone to show beside them.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
) -> None:
    """Show runs live in the browser, several side by side. Only this machine can open the page."""
    with user_errors():
        from hacrl.analysis.report.server import LiveRuns, make_server

        server = make_server(LiveRuns(runs, baseline), port)
    say(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("")
    finally:
        server.server_close()
