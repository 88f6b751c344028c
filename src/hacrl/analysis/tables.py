"""Tables for the terminal, or as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class TextTable:
    """Cells as text; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def make_table(title: str, text: Sequence[str], numbers: Sequence[str], caption: str | None = None) -> Table:
    """An empty terminal table: columns of text, then columns of numbers."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in text:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def print_tables(tables: Sequence[TextTable], *, markdown: bool) -> None:
    """Write the tables to standard output."""
    if markdown:
        print("\n\n".join(as_markdown(table) for table in tables))
        return
    console = Console()
    for table in tables:
        shown = make_table(table.title, table.header[:1], table.header[1:])
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)


def as_markdown(table: TextTable) -> str:
    """The title as a line of its own, then the table."""
    rule = tuple("---" if number == 0 else "---:" for number in range(len(table.header)))
    lines = ["| " + " | ".join(row) + " |" for row in (table.header, rule, *table.rows)]
    return "\n".join([f"{table.title}", "", *lines])
