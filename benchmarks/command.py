"""The command line that all benchmarks share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from hacrl.analysis.tables import TextTable, print_tables
from hacrl.cli.common import user_errors

Repeats = Annotated[int, typer.Option(min=1, help="Measured rounds.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures to this file.")
]


def command(function: Callable[..., None]) -> typer.Typer:
    """The function as a program: its docstring and options are the help, users' mistakes end it with 2."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        with user_errors():
            function(*arguments, **options)

    program = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    program.command()(run)
    return program


def show(tables: Sequence[TextTable], figures: Any, markdown: bool, json_file: Path | None) -> None:
    """Print the tables; the figures behind them, a dataclass, go to the file if there is one."""
    print_tables(tables, markdown=markdown)
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(figures), indent=2) + "\n")


def progress(doing: str) -> None:
    """Print what is being measured to stderr, apart from the tables."""
    typer.echo(f"... {doing}", err=True)
