"""`hacrl`: the command-line tool. Each command lives in a module of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from hacrl import __version__
from hacrl.cli.audit import audit
from hacrl.cli.compare import compare
from hacrl.cli.demo import demo
from hacrl.cli.doctor import doctor
from hacrl.cli.evaluate import evaluate
from hacrl.cli.init import init
from hacrl.cli.report import report, watch
from hacrl.cli.results import results
from hacrl.cli.simulate import simulate
from hacrl.cli.train import train
from hacrl.cli.trajectories import trajectories
from hacrl.cli.verify import verify
from hacrl.own_code import shield_children


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"hacrl {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="hacrl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Train several different language models together with reinforcement learning."""


app.command()(init)
app.command()(train)
app.command("eval")(evaluate)
app.command()(compare)
app.command()(results)
app.command()(audit)
app.command()(doctor)
app.command()(demo)
app.command()(simulate)
app.command()(report)
app.command()(watch)
app.command()(trajectories)
app.command()(verify)


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench() -> None:
    """Moved out of the package."""
    typer.echo(
        "error: hacrl bench is now `python -m benchmarks.trl`, run from a clone of the repository; "
        "`python -m benchmarks` lists the other benchmarks",
        err=True,
    )
    raise typer.Exit(2)


def main() -> None:
    """Run the command line."""
    shield_children()
    app()
