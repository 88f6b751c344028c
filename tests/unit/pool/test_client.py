"""A client exchanges once per step and never waits for a pool that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from hacrl.pool import Place, PoolClient, Reader, SharedPoolError, client, open_place
from hacrl.pool.entry import LARGEST
from helpers_pool import KEY, entry


def make_client(place: Place, writer: str, wait_seconds: float = 30.0) -> PoolClient:
    return PoolClient(place, KEY, Reader(KEY, max_staleness=9, quota=100), writer, wait_seconds=wait_seconds)


class Faulty:
    """A place that fails or hangs when told to."""

    start = "0"

    def __init__(self, place: Place) -> None:
        self._place = place
        self.broken = False
        self.answering = threading.Event()
        self.answering.set()

    def append(self, writer: str, lines: Sequence[bytes]) -> None:
        self.answering.wait()
        if self.broken:
            raise SharedPoolError("the disk is gone")
        self._place.append(writer, lines)

    def segments(self) -> list[str]:
        return self._place.segments()

    def read(self, writer: str, position: str | None, limit: int) -> tuple[list[bytes], str]:
        return self._place.read(writer, position, limit)

    def close(self) -> None: ...


def test_two_clients_get_what_the_other_writes(tmp_path: Path):
    ada, eve = (make_client(open_place(str(tmp_path)), writer) for writer in ("ada", "eve"))
    assert ada.exchange([entry(1, writer="ada")]).entries == []
    assert eve.exchange([entry(2, writer="eve")]).entries == [entry(1, writer="ada")]
    taken = ada.exchange([])
    assert taken.entries == [entry(2, writer="eve")]
    assert not taken.refused
    assert ada.exchange([]).entries == eve.exchange([]).entries == []


def test_a_restored_client_reads_on(tmp_path: Path):
    ada, eve = (make_client(open_place(str(tmp_path)), writer) for writer in ("ada", "eve"))
    ada.exchange([entry(1, writer="ada")])
    eve.exchange([])
    ada.exchange([entry(2, writer="ada"), entry(2, writer="ada")])
    again = make_client(open_place(str(tmp_path)), "eve")
    again.load_state_dict(eve.state_dict())
    taken = again.exchange([])
    assert taken.entries == [entry(2, writer="ada")]
    assert taken.refused == {"replayed": 1}


def test_a_pool_that_fails_is_named_once_and_gets_everything_later(tmp_path: Path):
    place = Faulty(open_place(str(tmp_path)))
    ada, eve = make_client(place, "ada"), make_client(open_place(str(tmp_path)), "eve")
    place.broken = True
    first = ada.exchange([entry(1, writer="ada")])
    assert (first.trouble, first.refused) == ("the disk is gone", {"unavailable": 1})
    # nobody waits for it now: until it has answered, failures come in at once or in the next step
    later = [ada.exchange([entry(n, writer="ada")]) for n in (2, 3)]
    assert [taken.trouble for taken in later] == ["", ""]
    place.broken = False
    _until_available(ada)
    assert eve.exchange([]).entries == [entry(n, writer="ada") for n in (1, 2, 3)]


def _until_available(pool: PoolClient) -> None:
    for _ in range(1000):
        if "unavailable" not in pool.exchange([]).refused:
            return
        threading.Event().wait(0.01)
    raise AssertionError("still not available")


def test_a_pool_that_hangs_is_waited_for_once(tmp_path: Path):
    place = Faulty(open_place(str(tmp_path)))
    place.answering.clear()
    ada = make_client(place, "ada", wait_seconds=0.05)
    eve = make_client(open_place(str(tmp_path)), "eve")
    assert "0.05 s" in ada.exchange([entry(1, writer="ada")]).trouble
    ada._wait_seconds = 1e9  # to wait again would end this test by its time limit
    for n in (2, 3):
        taken = ada.exchange([entry(n, writer="ada")])
        assert (taken.trouble, taken.refused) == ("", {"unavailable": 1})
    place.answering.set()
    _until_available(ada)
    _until_available(ada)
    assert eve.exchange([]).entries == [entry(n, writer="ada") for n in (1, 2, 3)]


def test_what_waits_is_bounded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = Faulty(open_place(str(tmp_path)))
    place.broken = True
    ada = make_client(place, "ada")
    assert ada.exchange([entry(0, writer="ada", response="x" * LARGEST)]).refused["unsent"] == 1
    monkeypatch.setattr(client, "MOST_OUTSTANDING", 1000)
    given_up = sum(ada.exchange([entry(n, writer="ada")]).refused["unsent"] for n in range(20))
    assert 15 <= given_up <= 19


def test_a_pool_that_hangs_does_not_keep_a_run_from_beginning(tmp_path: Path):
    place = Faulty(open_place(str(tmp_path)))
    place.answering.clear()
    assert make_client(place, "ada", wait_seconds=0.05).join(0, seconds=1e9) == 0
    place.answering.set()


def test_who_joins_is_seen_at_once(tmp_path: Path):
    ada, eve = (make_client(open_place(str(tmp_path)), writer) for writer in ("ada", "eve"))
    assert ada.join(1, seconds=0.0) == 0
    assert eve.join(1, seconds=1e9) == 1
    assert eve.exchange([]).refused == {}
