"""A pool in a directory, also on a shared disk: `WRITER.jsonl` for every writer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hacrl.pool.entry import is_name
from hacrl.pool.places import SharedPoolError, local_path
from hacrl.runs.files import StorageError, append_bytes, explain_os_errors, make_directory, open_regular

ENDING = ".jsonl"


class Directory:
    """One file per writer. A position is a number of bytes."""

    start = "0"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mended: set[str] = set()

    def append(self, writer: str, lines: Sequence[bytes]) -> None:
        """Add lines and sync them to the disk."""
        try:
            if writer not in self._mended:
                make_directory(self._path)
                _drop_torn_line(self._file(writer))
                self._mended.add(writer)
            append_bytes(self._file(writer), b"".join(line + b"\n" for line in lines))
        except StorageError as error:
            raise SharedPoolError(str(error)) from error

    def segments(self) -> list[str]:
        """The names of the files; none where there is no directory yet."""
        try:
            with explain_os_errors(self._path, "read"):
                if not self._path.exists():
                    return []
                names = [entry.name for entry in os.scandir(self._path)]
        except StorageError as error:
            raise SharedPoolError(str(error)) from error
        writers = [name.removesuffix(ENDING) for name in names if name.endswith(ENDING)]
        return sorted(filter(is_name, writers))

    def read(self, writer: str, position: str | None, limit: int) -> tuple[list[bytes], str]:
        """Whole lines. One that is longer than the limit comes in pieces, none of which is an entry."""
        try:
            with open_regular(self._file(writer)) as file:
                size = os.fstat(file.fileno()).st_size
                start = int(position) if position is not None else max(0, size - limit)
                if start > size:  # the file is another one now
                    start = 0
                file.seek(start)
                data = file.read(limit)
        except (StorageError, ValueError) as error:
            raise SharedPoolError(str(error)) from error
        end = data.rfind(b"\n") + 1
        if not end and len(data) == limit:
            return [data], str(start + len(data))
        lines = data[:end].split(b"\n")[:-1]
        joined_inside = position is None and start > 0
        return lines[1:] if joined_inside else lines, str(start + end)

    def close(self) -> None:
        """Nothing is open between calls."""

    def _file(self, writer: str) -> Path:
        return self._path / f"{writer}{ENDING}"


def _drop_torn_line(path: Path) -> None:
    """Cut a last line that a kill left incomplete; no reader has gone past the last line break."""
    if not path.exists():
        return
    with open_regular(path) as file:
        end = size = os.fstat(file.fileno()).st_size
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            end = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
    if end < size:
        with explain_os_errors(path, "mend"):
            os.truncate(path, end)


def open_url(url: str, password: str | None, seconds: float) -> Directory:
    """The directory that a URL names."""
    return Directory(local_path(url))
