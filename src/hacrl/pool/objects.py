"""A pool in object storage through fsspec, such as `s3://BUCKET/PREFIX` (pip install 'hacrl[pool]').

Objects cannot be appended to: every step of a writer is an object of its own, `WRITER/000000001.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fsspec

from hacrl.pool.entry import is_name
from hacrl.pool.places import SharedPoolError

_OBJECT = re.compile(r"\d{9}\.jsonl")


class Objects:
    """A position is the name of an object."""

    start = ""

    def __init__(self, url: str) -> None:
        self._url = url
        with self._explained("open"):
            # Listings are always asked for anew: others write too.
            self._files: Any
            self._files, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)

    def append(self, writer: str, lines: Sequence[bytes]) -> None:
        """Write the next object; object storage shows all of it or nothing."""
        with self._explained("write to"):
            number = int(next(iter(self._names(writer)[-1:]), "000000000")[:9]) + 1
            self._files.makedirs(f"{self._root}/{writer}", exist_ok=True)
            path = f"{self._root}/{writer}/{number:09d}.jsonl"
            self._files.pipe_file(path, b"".join(line + b"\n" for line in lines))

    def segments(self) -> list[str]:
        """The names of the writers' prefixes."""
        with self._explained("read"):
            return [name for name in self._list("") if is_name(name)]

    def read(self, writer: str, position: str | None, limit: int) -> tuple[list[bytes], str]:
        """The lines of the objects after one, or of the newest."""
        with self._explained("read"):
            names = [name for name in self._names(writer) if position is None or name > position]
            lines: list[bytes] = []
            read: list[str] = []
            for name in reversed(names) if position is None else names:
                path = f"{self._root}/{writer}/{name}"
                size = self._files.size(path)
                if read and size > limit:
                    break
                data = self._files.cat_file(path, start=0, end=max(limit, 1))
                lines = _lines(data) + lines if position is None else lines + _lines(data)
                read.append(name)
                limit -= size
        return lines, max(read, default=position or self.start)

    def close(self) -> None:
        """Connections belong to fsspec."""

    def _names(self, writer: str) -> list[str]:
        return [name for name in self._list(writer) if _OBJECT.fullmatch(name)]

    def _list(self, below: str) -> list[str]:
        try:
            found = self._files.ls(f"{self._root}/{below}".rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except ImportError:
            raise
        except Exception as error:  # every storage has errors of its own
            raise SharedPoolError(f"cannot {doing} {self._url}: {type(error).__name__}: {error}") from error


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def open_url(url: str, password: str | None, seconds: float) -> Objects:
    """The prefix that a URL names; time limits and credentials are those of its file system."""
    return Objects(url)
