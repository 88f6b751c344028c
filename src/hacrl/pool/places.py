"""Where a pool is: a directory, Redis, or object storage. All have one segment per writer, only appended to.

No two runs write to the same segment, so writers need no lock, and a reader that remembers its position in
every segment reads what is new and nothing else.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hacrl.pool.entry import LARGEST

READ_AT_ONCE = 64 << 20
"""Bytes that one reading takes, at most, from all segments together: bounds memory and time."""
MODULES = {"": "directory", "file": "directory", "redis": "redis_streams", "rediss": "redis_streams"}
"""Scheme of a URL -> the module of its place; all others are file systems of fsspec."""
_URL = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<rest>.*)", re.DOTALL)


class SharedPoolError(Exception):
    """A pool cannot be reached or used; the message says which and what to do."""


class Place(Protocol):
    """The segments of a pool. Whatever fails raises `SharedPoolError`."""

    start: str
    """The position before the first line of every segment."""

    def append(self, writer: str, lines: Sequence[bytes]) -> None:
        """Add lines to the writer's segment: after a kill, all of an entry is there or nothing of it."""

    def segments(self) -> list[str]:
        """The writers that have one."""

    def read(self, writer: str, position: str | None, limit: int) -> tuple[list[bytes], str]:
        """The lines after a position, about `limit` bytes at most, and the position after them.

        Without a position, the newest ones: a trainer that joins does not need the whole past.
        """

    def close(self) -> None:
        """Drop connections."""


def open_place(url: str, *, password: str | None = None, seconds: float = 5.0) -> Place:
    """The place that a URL names; nothing is created and nobody is asked before it is used."""
    scheme = check_url(url)
    name = MODULES.get(scheme, "objects")
    try:
        module = importlib.import_module(f"hacrl.pool.{name}")
        place: Place = module.open_url(url, password, seconds)
    except ImportError as error:
        raise SharedPoolError(f"{url} needs another package ({error}): pip install 'hacrl[pool]'") from error
    return place


def check_url(url: str) -> str:
    """The scheme of a pool's URL, in lower case; `ValueError` if it is none, or has a password in it."""
    match = _URL.fullmatch(url)
    assert match is not None, "every text matches"
    scheme, rest = (match["scheme"] or "").lower(), match["rest"]
    if not rest.strip("/") or "\0" in rest:
        raise ValueError("expected a directory, redis://HOST:PORT/NUMBER/NAME or s3://BUCKET/PREFIX")
    if scheme and "@" in rest.partition("/")[0]:
        raise ValueError(
            "expected no user or password in it, which would be stored with the run: name an environment "
            "variable in password_env, or use the storage's own credentials"
        )
    if scheme.startswith("redis") and not re.fullmatch(r"[^/]+/\d{1,5}/[\w.:-]{1,128}", rest):
        raise ValueError("expected redis://HOST:PORT/NUMBER/NAME, such as redis://localhost:6379/0/math")
    return scheme


def local_path(url: str) -> Path:
    """The directory of a URL without a scheme, or with `file`."""
    return Path(re.sub(r"^file://", "", url, flags=re.IGNORECASE))


def read_all(place: Place) -> Iterator[tuple[str, list[bytes]]]:
    """All lines of all segments, some at a time, each part with its writer."""
    for writer in place.segments():
        position = place.start
        while True:
            lines, after = place.read(writer, position, READ_AT_ONCE)
            yield writer, lines
            if after == position:
                break
            position = after


Cursor = dict[str, str]
"""Writer -> position in its segment."""


def read_new(
    place: Place, cursor: Mapping[str, str], own: str | None = None
) -> tuple[dict[str, list[bytes]], Cursor]:
    """What every segment but one's own has after the cursor, and the cursor after that.

    Every segment gets the same share of what is read at once, so that a flood in one delays no other. If
    there are too many, those come first that were read the longest time ago: the cursor is in this order.
    """
    there = set(place.segments()) - {own}
    writers = [writer for writer in cursor if writer in there] + sorted(there - cursor.keys())
    share, left = max(2 * LARGEST, READ_AT_ONCE // max(1, len(writers))), READ_AT_ONCE
    found, positions = {}, dict(cursor)
    for writer in writers:
        if left <= 0:
            break
        found[writer], position = place.read(writer, positions.pop(writer, None), share)
        positions[writer] = position  # now the last one
        left -= sum(map(len, found[writer]))
    return found, positions
