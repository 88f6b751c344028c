"""What a reader of a pool accepts: signed entries of this format, each once, recent, not too many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from hacrl.pool.entry import LARGEST, Entry, PoolKey, UnknownSchema, read_entry

FURTHEST_AHEAD = 1000
"""Versions that a source may be ahead of its newest known one: a larger step would make all that it honestly
wrote look old."""
LATEST_VERSION = 1_000_000
"""The largest version of a source that is not known yet."""
SOURCES_AT_ONCE = 16
"""Quotas that all sources together have in one reading."""
Source = tuple[str, str]
"""Writer and agent."""


class Reader:
    """Checks lines and remembers what it has seen; every refused line is counted under its cause.

    Causes: `oversize`, `malformed`, `schema`, `signature`, `replayed`, `stale`, `future`, `quota`.
    """

    def __init__(self, key: PoolKey | None, *, max_staleness: int, quota: int) -> None:
        """Without a key, signatures are not checked: for looking at a pool, never for training."""
        self._key = key
        self._max_staleness = max_staleness
        self._quota = quota
        self._newest: dict[Source, int] = {}
        self._seen: defaultdict[Source, dict[str, int]] = defaultdict(dict)
        """Ids and versions of the entries that are not stale yet."""

    def accept(self, lines: Mapping[str, Iterable[bytes]]) -> tuple[list[Entry], Counter[str]]:
        """The entries to use, of the lines of every segment, and how many were refused by cause.

        Of a source that has too many, the newest are taken: they are the last ones.
        """
        refused: Counter[str] = Counter()
        found: dict[Source, list[Entry]] = defaultdict(list)
        for writer, segment in sorted(lines.items()):
            for line in segment:
                entry = self._read(writer, line, refused)
                if entry is not None:
                    found[writer, entry.source].append(entry)
        accepted: list[Entry] = []
        for source, entries in sorted(found.items()):
            fresh = [entry for entry in entries if not self._is_stale(source, entry.version)]
            refused["stale"] += len(entries) - len(fresh)
            room = max(0, min(self._quota, SOURCES_AT_ONCE * self._quota - len(accepted)))
            taken = fresh[len(fresh) - min(room, len(fresh)) :]
            refused["quota"] += len(fresh) - len(taken)
            accepted += taken
            self._forget(source)
        return accepted, +refused

    def _read(self, writer: str, line: bytes, refused: Counter[str]) -> Entry | None:
        """An entry that was not seen before; whether it is stale shows when all are read."""
        if len(line) > LARGEST:
            refused["oversize"] += 1
            return None
        try:
            entry, signed = read_entry(line, self._key)
        except UnknownSchema:
            refused["schema"] += 1
            return None
        except ValueError:
            refused["malformed"] += 1
            return None
        source, newest = (writer, entry.source), self._newest.get((writer, entry.source))
        bound = LATEST_VERSION if newest is None else newest + FURTHEST_AHEAD
        if not signed or entry.writer != writer:  # moved to another segment, it is not what was signed
            refused["signature"] += 1
        elif entry.version > bound:
            refused["future"] += 1
        elif entry.id in self._seen[source]:
            refused["replayed"] += 1
        else:
            self._seen[source][entry.id] = entry.version
            self._newest[source] = max(entry.version, newest or 0)
            return entry
        return None

    def _is_stale(self, source: Source, version: int) -> bool:
        return version < self._newest[source] - self._max_staleness

    def _forget(self, source: Source) -> None:
        """Entries that are stale are refused for that: their ids need not be remembered."""
        seen = self._seen[source].items()
        self._seen[source] = {id_: version for id_, version in seen if not self._is_stale(source, version)}

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "/".join(source): {"newest": newest, "seen": self._seen[source]}
            for source, newest in sorted(self._newest.items())
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name, known in state.items():
            writer, _, agent = name.partition("/")
            self._newest[writer, agent] = int(known["newest"])
            self._seen[writer, agent] = {id_: int(version) for id_, version in known["seen"].items()}
