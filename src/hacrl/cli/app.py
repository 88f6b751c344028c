"""`hacrl`: the command-line tool. Each command lives in a module of its own."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hacrl import __version__
from hacrl.cli.audit import audit
from hacrl.cli.common import fail, report_error
from hacrl.cli.compare import compare
from hacrl.cli.demo import demo
from hacrl.cli.doctor import doctor
from hacrl.cli.evaluate import evaluate
from hacrl.cli.init import init
from hacrl.cli.launch import launch
from hacrl.cli.pool import pool
from hacrl.cli.push import push
from hacrl.cli.report import report, watch
from hacrl.cli.results import results
from hacrl.cli.simulate import simulate
from hacrl.cli.streams import outlive_readers
from hacrl.cli.train import train
from hacrl.cli.trajectories import trajectories
from hacrl.cli.verify import verify
from hacrl.own_code import shield_children

_UsageError: Any = typer.BadParameter.__base__  # click's, which newer versions of typer bring along


class _Commands(TyperGroup):
    """Reports mistakes in options like all others: in one line, so that no path in it is broken in two."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and exit."""
        try:
            sys.exit(super().main(*args, **{**options, "standalone_mode": False}))
        except _UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # then the help is on the screen already
                where = error.ctx.command_path if error.ctx else "hacrl"
                report_error(f"{error.format_message()} (see {where} --help)")
            sys.exit(error.exit_code)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"hacrl {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
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
app.command()(launch)
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
app.command()(pool)
app.command()(push)


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench() -> None:
    """Moved out of the package."""
    fail(
        "hacrl bench is now `python -m benchmarks.trl`, run from a clone of the repository; "
        "`python -m benchmarks` lists the other benchmarks"
    )


def main() -> None:
    """Run the command line."""
    shield_children()
    outlive_readers()
    app()
