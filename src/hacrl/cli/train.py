"""`hacrl train`: run a recipe."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.common import say, show, summary_table, user_errors, writable_directory


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change a key of the recipe: steps=20 method.name=gspo"),
    ] = None,
    out: Annotated[Path, typer.Option(callback=writable_directory, help="Directory of the run.")] = Path(
        "runs/latest"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    runtime: Annotated[
        str, typer.Option(help="Where the agents run, local or ray: short for runtime.name=...")
    ] = "",
) -> None:
    """Train several agents together.

    The run directory holds config.json, metrics.jsonl, trajectories, checkpoints and summary.json; at the end
    also report.html, and every agent in a directory of its own that plain transformers loads. Ctrl-C finishes
    the step and saves.
    """
    from hacrl.recipe import load_recipe

    changes = [*(overrides or ()), *([f"runtime.name={runtime}"] if runtime else [])]
    with user_errors():
        settings = load_recipe(recipe, changes)  # before the slow imports: mistakes show at once

        from hacrl.training.run import Stopped
        from hacrl.training.trainer import train as run_recipe

        try:
            summary = run_recipe(settings, out, resume=resume)
        except Stopped as stopped:
            words = shlex.join([str(recipe), *changes, "--out", str(out)])
            typer.echo(
                f"Stopped after step {stopped.step}. Continue with: hacrl train {words} --resume", err=True
            )
            raise typer.Exit(128 + stopped.signal) from None

        from hacrl.analysis.report import write_report

        report = write_report(out)
    show(summary_table(summary))
    say(f"Run directory: {out}\nReport: {report}")
