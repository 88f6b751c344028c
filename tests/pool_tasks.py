"""What `kill_at_every_change` does to pools."""

from __future__ import annotations

from pathlib import Path

from hacrl.pool import open_place
from helpers_pool import entry, lines


def append(directory: Path) -> None:
    open_place(str(directory)).append("ada", lines(entry(2), entry(3)))
