"""One table, two ways to print it: for a terminal, and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def print_tables(tables: Sequence[Table], *, markdown: bool) -> None:
    """Write the tables to standard output."""
    if markdown:
        print("\n\n".join(as_markdown(table) for table in tables))
        return
    console = Console()
    for table in tables:
        shown = RichTable(title=table.title, title_justify="left")
        for number, name in enumerate(table.header):
            shown.add_column(name, justify="left" if number == 0 else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)


def as_markdown(table: Table) -> str:
    """The title as a line of its own, then the table."""
    rule = tuple("---" if number == 0 else "---:" for number in range(len(table.header)))
    lines = ["| " + " | ".join(row) + " |" for row in (table.header, rule, *table.rows)]
    return "\n".join([f"{table.title}", "", *lines])
