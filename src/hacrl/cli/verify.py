"""`hacrl verify`: score a file of responses offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hacrl.cli.common import show, user_errors, writable_file
from hacrl.defaults import DEADLINE_SECONDS, MAX_DEADLINE_SECONDS

if TYPE_CHECKING:
    from hacrl.analysis.tables import PlainTable


def verify(
    file: Annotated[
        Path, typer.Argument(help="JSONL file, one response per row.", exists=True, dir_okay=False)
    ],
    verifier: Annotated[str, typer.Option(help="Name of the verifier, for example math.")],
    gold: Annotated[
        str | None,
        typer.Option(show_default="the verifier's, mostly answer", help="Column with the gold answer."),
    ] = None,
    response: Annotated[str, typer.Option(help="Column with the response to score.")] = "response",
    out: Annotated[
        Path | None,
        typer.Option(callback=writable_file, help="Write the rows with `reward` and `cause` here."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", callback=writable_file, help="Write the summary here.")
    ] = None,
    deadline: Annotated[
        float, typer.Option(help="Seconds for one response.", min=0.01, max=MAX_DEADLINE_SECONDS)
    ] = DEADLINE_SECONDS,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1, max=1000)] = 2,
) -> None:
    """Score a file of responses with a verifier; print accuracy and, by cause, what could not be scored."""
    from hacrl.rewards.offline import read_rows, score_rows, summarise, write_rows
    from hacrl.rewards.verifiers import get_verifier
    from hacrl.runs.files import write_json

    with user_errors():
        column = gold or get_verifier(verifier).gold
        rows = read_rows(file, column, response)
        scores = score_rows(rows, verifier, column, response, deadline, workers)
        summary: dict[str, Any] = {"file": str(file), "verifier": verifier, **summarise(scores)}
        if out:
            write_rows(out, rows, scores)
        if json_file:
            write_json(json_file, summary)
    show(_table(summary))


def _table(summary: dict[str, Any]) -> PlainTable:
    from hacrl.analysis.tables import PlainTable

    table = PlainTable(show_header=False)
    accuracy = summary["accuracy"]
    table.add_row("verifier", summary["verifier"])
    table.add_row("rows", str(summary["rows"]))
    table.add_row("scored", str(summary["scored"]))
    table.add_row("accuracy", "-" if accuracy is None else f"{accuracy:.4f}")
    for cause, count in summary["unscorable"].items():
        table.add_row(f"unscorable: {cause}", str(count))
    return table
