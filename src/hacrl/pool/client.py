"""A trainer's side of a pool: one exchange per step, which never waits long.

The place is used in a thread of its own. If it does not answer in time, the step goes on without it: what was
to be written stays outstanding, what it answers later is used in the next step. Until it has answered,
nobody waits for it again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from hacrl.pool.entry import LARGEST, Entry, PoolKey, sign
from hacrl.pool.places import Cursor, Place, read_new
from hacrl.pool.reader import Reader

MOST_OUTSTANDING = 64 << 20
"""Bytes that wait to be written, at most; the oldest are given up."""
Lines = dict[str, list[bytes]]


@dataclass(frozen=True)
class Taken:
    """The outcome of one exchange."""

    entries: list[Entry]
    refused: Counter[str]
    """Lines that were not accepted, by cause; `unavailable`: the pool did not answer; `unsent`: given up."""
    trouble: str = ""
    """Why the pool is not available; empty: it is, or this has been said before."""


class PoolClient:
    """Writes a run's entries to a pool and takes those of others."""

    def __init__(
        self, place: Place, key: PoolKey, reader: Reader, writer: str, *, wait_seconds: float
    ) -> None:
        self._place = place
        self._key = key
        self._reader = reader
        self._writer = writer
        self._wait_seconds = wait_seconds
        self._cursor: Cursor = {}
        self._outstanding: list[bytes] = []
        self._lock = threading.Lock()
        """For the outstanding lines, which both threads change."""
        self._running: Future[tuple[Lines, Cursor]] | None = None
        self._sent = 0
        """How many of the outstanding lines the running exchange writes."""
        self._available = True

    def put(self, entries: Sequence[Entry]) -> None:
        """Have entries written by the next exchange."""
        self._queue(entries, Counter())

    def flush(self) -> None:
        """Have everything written, if the pool is available."""
        if self._available and self._outstanding:
            self.exchange([])

    def exchange(self, entries: Sequence[Entry]) -> Taken:
        """Write entries and take what others have written since the last exchange."""
        refused: Counter[str] = Counter()
        self._queue(entries, refused)
        trouble = ""
        if self._running is None:
            self._begin()
        try:
            assert self._running is not None
            lines, cursor = self._running.result(self._wait_seconds if self._available else 0.0)
        except TimeoutError:
            refused["unavailable"] += 1
            trouble = f"it did not answer within {self._wait_seconds:g} s"
            found: list[Entry] = []
        except Exception as error:  # the place is somebody else's program: whatever it does, training goes on
            self._running = None
            refused["unavailable"] += 1
            found, trouble = [], str(error) or type(error).__name__
        else:
            self._running = None
            self._cursor = cursor
            found, causes = self._reader.accept(lines)
            refused.update(causes)
        said, self._available = not self._available, not trouble
        return Taken(found, +refused, "" if said else trouble)

    def join(self, others: int, seconds: float) -> int:
        """Be seen in the pool, and wait until so many others are, at most so long; returns how many are.

        Trainers that start together would otherwise miss each other's first steps.
        """
        outcome: Future[int] = Future()
        threading.Thread(target=self._join, args=(outcome, others, seconds), daemon=True).start()
        try:
            return outcome.result(self._wait_seconds + (seconds if others else 0.0))
        except Exception:  # the first exchange says so
            return 0

    def _join(self, outcome: Future[int], others: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        try:
            self._place.append(self._writer, [])
            while (found := len(set(self._place.segments()) - {self._writer})) < others:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.05)
            outcome.set_result(found)
        except BaseException as error:
            outcome.set_exception(error)

    def close(self) -> None:
        """Drop connections; an exchange that still hangs is abandoned."""
        if self._running is None:
            self._place.close()

    def state_dict(self) -> dict[str, Any]:
        """Where to read on, and what was seen: plain JSON values."""
        return {"cursor": self._cursor, "reader": self._reader.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._cursor = dict(state["cursor"])
        self._reader.load_state_dict(state["reader"])

    def _queue(self, entries: Sequence[Entry], refused: Counter[str]) -> None:
        lines = [sign(entry, self._key) for entry in entries]
        with self._lock:
            self._outstanding += [line for line in lines if len(line) <= LARGEST]
            refused["unsent"] += sum(len(line) > LARGEST for line in lines)
            size = sum(map(len, self._outstanding))
            while size > MOST_OUTSTANDING and len(self._outstanding) > self._sent:
                size -= len(self._outstanding.pop(self._sent))
                refused["unsent"] += 1

    def _begin(self) -> None:
        """Start a thread that nobody joins: a place that hangs for ever must not keep the process alive."""
        lines = list(self._outstanding)
        self._sent = len(lines)
        self._running = Future()
        threading.Thread(target=self._run, args=(self._running, lines), daemon=True).start()

    def _run(self, outcome: Future[tuple[Lines, Cursor]], lines: list[bytes]) -> None:
        try:
            if lines:
                self._place.append(self._writer, lines)
                with self._lock:
                    del self._outstanding[: len(lines)]
                    self._sent = 0
            outcome.set_result(read_new(self._place, self._cursor, self._writer))
        except BaseException as error:
            self._sent = 0
            outcome.set_exception(error)
