"""`hacrl`: the command-line tool. Each command lives in a module of its own."""

from __future__ import annotations

import typer

from hacrl.cli.trajectories import trajectories

app = typer.Typer(
    name="hacrl",
    help="Train several different language models together with reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(trajectories)


def main() -> None:
    """Run the command line."""
    app()
