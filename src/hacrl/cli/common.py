"""Shared by the commands: error messages, options, tables.

Heavy modules are imported inside the functions: `hacrl --help` loads this one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from hacrl.training.evaluation import Evaluation

Jobs = Annotated[int | None, typer.Option(min=1, show_default="one per core", help="Runs in parallel.")]
RunsWhere = Annotated[
    str, typer.Option(help="Where the runs are executed: on this machine's cores (local), or on ray.")
]
ClusterAddress = Annotated[
    str | None, typer.Option(show_default="one on this machine", help="host:port of a running Ray cluster.")
]


@contextmanager
def user_errors() -> Iterator[None]:
    """End the command with one message and exit code 2, without a traceback, on errors a user can fix.

    These are hacrl's own errors and those about values, files and missing packages.
    """
    try:
        yield
    except Exception as error:
        ours = type(error).__module__.startswith("hacrl.")  # by name: importing them all would be slow
        if not (ours or isinstance(error, ValueError | OSError | ImportError)):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


@contextmanager
def comparison_errors() -> Iterator[None]:
    """As `user_errors`; the exit code is 128 + signal if runs were stopped, and 1 if some failed."""
    with user_errors():
        from hacrl.analysis.compare.runner import Interrupted, RunsFailed

        try:
            yield
        except Interrupted as stopped:
            typer.echo("Stopped; every run is saved. Go on with the same command.", err=True)
            raise typer.Exit(128 + stopped.signal) from None
        except RunsFailed as failed:
            typer.echo(f"error: {failed}", err=True)
            raise typer.Exit(1) from None


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Every agent of a run before and after training, with 95% intervals and rollouts."""
    from hacrl.analysis.tables import make_table
    from hacrl.training.evaluation import MEASURES, measure_name

    title = f"{summary['method']} on {summary['task']}, {summary['steps']} steps"
    table = make_table(title, ("agent", "measure"), ("before", "after", "rollouts"))
    for name, agent in summary["agents"].items():
        several = len(agent["after"]) > 1
        for task, after in agent["after"].items():
            before = agent["before"].get(task)
            for measure in MEASURES:
                if after[measure] is None:
                    continue
                label = measure_name(measure, after["samples"])
                table.add_row(
                    name,
                    f"{task}: {label}" if several else label,
                    _interval(before[measure]) if before else "-",
                    _interval(after[measure]),
                    f"{agent['rollouts']:,}",
                )
    return table


def evaluation_table(title: str, result: Evaluation) -> Table:
    """One agent on one task."""
    from hacrl.analysis.tables import make_table

    table = make_table(title, ("measure",), ("accuracy", "problems"))
    rows = [("greedy", result.greedy)]
    if len(result.greedy_by_kind) > 1:
        rows += [(f"greedy, {kind}", share) for kind, share in result.greedy_by_kind.items()]
    sampled = [(f"mean@{result.samples}", result.mean_at_k), (f"pass@{result.samples}", result.pass_at_k)]
    rows += [(measure, share) for measure, share in sampled if share is not None]
    for measure, share in rows:
        table.add_row(measure, _interval(asdict(share)), str(share.problems))
    if result.unscorable:
        table.caption = f"{result.unscorable} responses could not be scored and do not count"
    return table


def _interval(share: Mapping[str, float]) -> str:
    """A share with its 95% interval: .427 [.37, .48]."""
    mean, low, high = (share[key] for key in ("mean", "low", "high"))
    text = f"{mean:.3f} [{low:.2f}, {high:.2f}]"
    return text.replace("0.", ".")
