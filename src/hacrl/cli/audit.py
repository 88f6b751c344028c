"""`hacrl audit`: measure what the theory predicts of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hacrl.cli.common import say, show, user_errors, writable_file

if TYPE_CHECKING:
    from hacrl.analysis.audit.audit import OnProgress


def audit(
    run: Annotated[
        Path | None, typer.Argument(help="The directory of a finished or stopped run.", show_default=False)
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="Training prompts to sample from.")] = 64,
    samples: Annotated[
        int,
        typer.Option(
            min=2, help="Responses per prompt for the reference; as many again are drawn in groups."
        ),
    ] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Of the prompts and responses.")] = 0,
    checkpoint: Annotated[
        int | None, typer.Option(help="Only the checkpoint of this step.", show_default="all that are kept")
    ] = None,
    toy: Annotated[
        bool, typer.Option("--toy", help="Only the toy vocabulary, under several settings; needs no run.")
    ] = False,
) -> None:
    """Measure a run's baselines, the effect of peers' responses, and the direction of their gradient.

    Writes audit.json into the run's directory. Warnings do not change the exit code.
    """
    with user_errors():
        if toy == (run is not None):
            raise ValueError("give a run's directory, or --toy without one")
        if run is None:
            from hacrl.analysis.audit.tables import toy_table
            from hacrl.analysis.audit.toy import toy_rows

            show(toy_table(toy_rows(seed=seed)))
        else:
            _audit_run(run, prompts, samples, seed, checkpoint)


def _audit_run(run: Path, prompts: int, samples: int, seed: int, checkpoint: int | None) -> None:
    from hacrl.analysis.audit.audit import FILE, SampleSize
    from hacrl.analysis.audit.audit import audit as measure
    from hacrl.analysis.audit.tables import audit_tables

    if run.is_dir():  # else the error is another
        writable_file(run / FILE)
    with _progress() as on_progress:
        found = measure(
            run, SampleSize(prompts, samples, seed), checkpoint=checkpoint, on_progress=on_progress
        )
    for table in audit_tables(found):
        show(table)
    for warning in found.warnings:
        say((f"warning: {warning}", "yellow"))
    say(f"{len(found.warnings)} warnings. Everything measured: {run / FILE}")


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """A bar with time left on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening", total=1.0)
        yield lambda share, text: bar.update(task, completed=share, description=text)
