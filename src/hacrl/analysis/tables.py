"""Tables for the terminal, or as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hacrl.printable import printable


@dataclass(frozen=True)
class TextTable:
    """Cells as text; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class PlainTable(Table):
    """A table for the terminal in which nothing is markup, and control characters are escaped."""

    def __init__(self, title: str = "", caption: str = "", **options: Any) -> None:
        super().__init__(title_justify="left", caption_justify="left", **options)
        self.title = _plain(title, "table.title") if title else None
        self.set_caption(caption)

    def set_caption(self, caption: str) -> None:
        """The text below the table."""
        self.caption = _plain(caption, "table.caption") if caption else None

    def add_column(self, header: str = "", *parts: Any, **options: Any) -> None:  # type: ignore[override]
        """As rich's; the heading is text."""
        super().add_column(_plain(header), *parts, **options)

    def add_row(self, *cells: str, **options: Any) -> None:  # type: ignore[override]
        """As rich's; the cells are text."""
        super().add_row(*map(_plain, cells), **options)


def _plain(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def make_table(title: str, text: Sequence[str], numbers: Sequence[str], caption: str = "") -> PlainTable:
    """An empty terminal table: columns of text, then columns of numbers."""
    table = PlainTable(title, caption)
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
