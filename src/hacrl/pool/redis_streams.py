"""A pool in Redis: one stream per writer, and a set of their names (pip install 'hacrl[pool]')."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from hacrl.pool.entry import is_name
from hacrl.pool.places import SharedPoolError

KEPT = 100_000
"""Entries of a writer that Redis keeps, about: it holds them in memory."""
AT_ONCE = 64
"""Entries of one request."""
LINE = b"entry"


class RedisStreams:
    """A position is the id of an entry in its stream."""

    start = "0-0"

    def __init__(self, url: str, name: str, password: str | None, seconds: float) -> None:
        self._shown = f"{url}/{name}"
        self._name = f"hacrl:pool:{name}"
        self._redis: Any = redis.Redis.from_url(
            url, password=password, socket_timeout=seconds, socket_connect_timeout=seconds
        )

    def append(self, writer: str, lines: Sequence[bytes]) -> None:
        """Add lines, each in one piece."""
        with self._explained("write to"):
            self._redis.sadd(self._name, writer)
            for start in range(0, len(lines), AT_ONCE):
                pipeline = self._redis.pipeline(transaction=False)
                for line in lines[start : start + AT_ONCE]:
                    pipeline.xadd(self._stream(writer), {LINE: line}, maxlen=KEPT, approximate=True)
                pipeline.execute()

    def segments(self) -> list[str]:
        """The names in the set."""
        with self._explained("read"):
            names = [name.decode(errors="replace") for name in self._redis.smembers(self._name)]
        return sorted(filter(is_name, names))

    def read(self, writer: str, position: str | None, limit: int) -> tuple[list[bytes], str]:
        """The entries after an id, or the newest."""
        with self._explained("read"):
            stream = self._stream(writer)
            if position is None:
                found = _up_to(self._pages(stream, "+", newest_first=True), limit)
                found.reverse()
            else:
                found = _up_to(self._pages(stream, position, newest_first=False), limit)
        last = found[-1][0].decode() if found else position or self.start
        return [fields.get(LINE, b"") for _, fields in found], last

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def _stream(self, writer: str) -> str:
        return f"{self._name}:{writer}"

    def _pages(self, stream: str, end: str, *, newest_first: bool) -> Iterator[list[Any]]:
        """Entries beyond an id, a page at a time."""
        while True:
            if newest_first:
                page = self._redis.xrevrange(stream, end if end == "+" else f"({end}", "-", count=AT_ONCE)
            else:
                page = self._redis.xrange(stream, f"({end}", "+", count=AT_ONCE)
            yield page
            if len(page) < AT_ONCE:
                return
            end = page[-1][0].decode()

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError, ValueError) as error:
            raise SharedPoolError(f"cannot {doing} {self._shown}: {error}") from error


def _up_to(pages: Iterator[list[Any]], limit: int) -> list[Any]:
    """Whole pages until they have so many bytes."""
    found: list[Any] = []
    for page in pages:
        found += page
        limit -= sum(len(fields.get(LINE, b"")) for _, fields in page)
        if limit <= 0:
            break
    return found


def open_url(url: str, password: str | None, seconds: float) -> RedisStreams:
    """`redis://HOST:PORT/NUMBER/NAME`: the pool NAME in a database."""
    database, _, name = url.rpartition("/")
    return RedisStreams(database, name, password, seconds)
