"""`hacrl init`: write a first recipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.common import say, user_errors, writable_file


def init(
    file: Annotated[Path, typer.Argument(callback=writable_file, help="The recipe to write.")] = Path(
        "recipe.yaml"
    ),
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]MODEL",
            help="A directory, a hub id or toy:NAME; once for each agent.",
            show_default="two toy models",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="A built-in task, a file or a data set.", show_default="one that suits the models"),
    ] = None,
    method: Annotated[str | None, typer.Option(help="How they learn.", show_default="commons")] = None,
    hardware: Annotated[
        str | None,
        typer.Option(help="cpu, gpu (all agents on one) or ray (a GPU for each).", show_default="cpu"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a short recipe with comments; on a terminal, ask for what the options leave open."""
    with user_errors():
        from hacrl.recipe.starter import TOYS, default_task, starter_recipe
        from hacrl.runs.files import write_atomic

        if file.exists() and not force:
            raise ValueError(f"{file} exists; name another file, or replace it with --force")
        chosen = model or _ask("Models (hub ids, directories or toy:NAME)", " ".join(TOYS)).split()
        text = starter_recipe(
            chosen,
            task or _ask("Task", default_task(chosen)),
            method or _ask("Method", "commons"),
            hardware or _ask("Hardware (cpu, gpu, ray)", "cpu"),
        )
        write_atomic(file, text.encode())
    say(f"{file} is written. Check it with `hacrl doctor {file}`.")


def _ask(question: str, default: str) -> str:
    """The answer of whoever sits at the terminal; the default where nobody does."""
    if not _is_interactive():
        return default
    answer: str = typer.prompt(question, default=default)
    return answer


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
