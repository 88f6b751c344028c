"""Shared by the commands: errors as messages, what is printed, checks of options, tables.

Nothing of the user's is markup: paths, names and texts are shown as they are, control characters escaped.
Heavy modules are imported inside the functions: `hacrl --help` loads this one.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hacrl.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from hacrl.training.evaluation import Evaluation

LONGEST_WORD, LONGEST_MESSAGE = 300, 3000
"""Characters of a path or value, and of a whole error message, that are shown."""

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
        if not (ours or isinstance(error, ValueError | OSError | ImportError | MemoryError)):
            raise
        fail(_message(error))


def fail(message: str, code: int = 2) -> NoReturn:
    """End the command with this message."""
    report_error(message)
    raise typer.Exit(code)


def report_error(message: str) -> None:
    """Every error of the command line is printed here, on a screen at most."""
    short = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:LONGEST_WORD]}...", message)
    text = _clean(f"error: {short}")
    typer.echo(text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}...", err=True)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "not enough memory"
    return str(error) or type(error).__name__


def _clean(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def say(*parts: str | tuple[str, str]) -> None:
    """Print one text; a part may be a text with its style."""
    from rich.console import Console
    from rich.text import Text

    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    text = Text.assemble(*((_clean(words), style) for words, style in pairs))
    Console(highlight=False).print(text, soft_wrap=True)


def show(table: RenderableType) -> None:
    """Print a table, or something else that rich can lay out."""
    from rich.console import Console

    Console(highlight=False).print(table)


def writable_file(path: Path | None) -> Path | None:
    """Check, before any work, that an option names a file that can be written: new, or a regular one."""
    if path is not None:
        _check_place(path, stat.S_ISREG, "a regular file")
        if not path.parent.is_dir():
            raise typer.BadParameter(f"the directory {path.parent} does not exist: create it first")
    return path


def writable_page(path: Path) -> Path:
    """As `writable_file`, for a command that creates missing directories."""
    _check_place(path, stat.S_ISREG, "a regular file")
    _check_above(path)
    return path


def writable_directory(path: Path) -> Path:
    """Check, before any work, that an option names a directory, or something that can become one."""
    _check_place(path, stat.S_ISDIR, "a directory")
    _check_above(path)
    return path


def _check_above(path: Path) -> None:
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise typer.BadParameter(f"{above} is not a directory: use another path")


def _check_place(path: Path, is_wanted: Callable[[int], bool], wanted: str) -> None:
    try:
        if not is_wanted(path.stat().st_mode):
            raise typer.BadParameter(f"{path} is not {wanted}: use another path")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise typer.BadParameter(_message(error)) from error


def finite(number: float | None) -> float | None:
    """Refuse infinity and NaN, which are numbers for Python."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"expected a finite number, got {number}")
    return number


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
            fail(str(failed), code=1)


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
                if after.get(measure) is None:
                    continue
                label = measure_name(measure, after["samples"], after.get("many", 0))
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
        table.set_caption(f"{result.unscorable} responses could not be scored and do not count")
    return table


def _interval(share: Mapping[str, float]) -> str:
    """A share with its 95% interval: .427 [.37, .48]."""
    mean, low, high = (share[key] for key in ("mean", "low", "high"))
    text = f"{mean:.3f} [{low:.2f}, {high:.2f}]"
    return text.replace("0.", ".")
