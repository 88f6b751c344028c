"""A directory, Redis and object storage behave alike: segments that are read on from where one was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hacrl.pool import Place, SharedPoolError, open_place, places
from hacrl.pool.entry import LARGEST
from hacrl.pool.places import check_url, read_new
from helpers_kills import kill_at_every_change
from helpers_pool import entry, lines, pool_url

MUCH = 64 << 20


@pytest.fixture(params=["directory", "redis", "memory"], scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pool_url(request.param, tmp_path_factory.mktemp("pool")) as found:
        yield found


@pytest.fixture
def place(url: str) -> Iterator[Place]:
    found = open_place(url)
    yield found
    found.close()


def test_lines_are_read_once_from_where_one_was(place: Place):
    place.append("ada", [b"1", b"2"])
    first, position = place.read("ada", None, MUCH)
    assert place.read("ada", position, MUCH) == ([], position)
    place.append("ada", [b"3"])
    place.append("ada", [b"4", b"5"])
    second, position = place.read("ada", position, MUCH)
    assert (first, second) == ([b"1", b"2"], [b"3", b"4", b"5"])
    assert place.read("ada", position, MUCH) == ([], position)


def test_a_writer_is_there_before_its_first_line(place: Place):
    place.append("fay", [])
    assert "fay" in place.segments()
    lines, position = place.read("fay", None, MUCH)
    place.append("fay", [b"1"])
    assert (lines, place.read("fay", position, MUCH)[0]) == ([], [b"1"])


def test_segments_are_the_writers(place: Place, url: str):
    place.append("bob", [b"b"])
    other = open_place(url)
    other.append("cid", [b"c"])
    other.close()
    assert {"bob", "cid"} <= set(place.segments())
    found, cursor = read_new(place, {}, own="bob")
    assert found["cid"] == [b"c"]
    assert "bob" not in found
    again, same = read_new(place, cursor, own="bob")
    assert not any(again.values())
    assert same == cursor


def test_a_long_segment_is_read_in_parts_and_newcomers_get_the_end(place: Place):
    written = [b"%04d" % n + b"x" * 996 for n in range(1000)]
    for start in range(0, 1000, 100):
        place.append("dan", written[start : start + 100])
    newest, position = place.read("dan", None, 300_000)
    assert newest == written[-len(newest) :]
    assert 100 <= len(newest) <= 600
    assert place.read("dan", position, MUCH) == ([], position)
    found, position = place.read("dan", None, MUCH)
    assert found == written


def test_parts_add_up(place: Place):
    place.append("eve", [b"0"])
    _, position = place.read("eve", None, MUCH)
    written = [b"%04d" % n + b"x" * 996 for n in range(1000)]
    for start in range(0, 1000, 250):
        place.append("eve", written[start : start + 250])
    found: list[bytes] = []
    for _ in range(1000):
        part, position = place.read("eve", position, 260_000)
        found += part
        if not part:
            break
    assert found == written


def test_a_pool_that_nobody_has_written_to_is_empty(tmp_path: Path):
    place = open_place(str(tmp_path / "none"))
    assert read_new(place, {}) == ({}, {})
    assert not (tmp_path / "none").exists()


def test_of_too_many_segments_some_are_read_at_a_time_and_all_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(places, "READ_AT_ONCE", 1000)
    place = open_place(str(tmp_path))
    for number in range(50):
        place.append(f"w{number}", [b"x" * 99])
    cursor: dict[str, str] = {}
    read: list[str] = []
    for _ in range(5):
        found, cursor = read_new(place, json.loads(json.dumps(cursor)))
        assert sum(len(line) for part in found.values() for line in part) <= 1099
        read += [writer for writer, part in found.items() if part]
    assert sorted(read) == sorted(f"w{number}" for number in range(50))


class TestDirectory:
    def test_a_torn_line_is_not_read_and_does_not_spoil_the_next(self, tmp_path: Path):
        open_place(str(tmp_path)).append("ada", [b"1", b"2"])
        with (tmp_path / "ada.jsonl").open("ab") as file:
            file.write(b"torn")
        reader = open_place(f"file://{tmp_path}")
        found, position = reader.read("ada", None, MUCH)
        assert found == [b"1", b"2"]
        open_place(str(tmp_path)).append("ada", [b"3"])
        assert reader.read("ada", position, MUCH)[0] == [b"3"]

    def test_a_line_without_an_end_is_passed(self, tmp_path: Path):
        (tmp_path / "eve.jsonl").write_bytes(b"x" * (5 * LARGEST) + b"\n" + b"good\n")
        place = open_place(str(tmp_path))
        found: list[bytes] = []
        position = "0"
        for _ in range(9):
            part, position = place.read("eve", position, 2 * LARGEST)
            found += part
        assert found[-1] == b"good"
        assert len(found) == 4

    def test_what_is_no_segment_is_left_alone(self, tmp_path: Path):
        for name in (".hidden.jsonl", "notes.txt", "a b.jsonl", "x" * 99 + ".jsonl"):
            (tmp_path / name).write_bytes(b"1\n")
        os.mkfifo(tmp_path / "pipe.jsonl")
        place = open_place(str(tmp_path))
        assert place.segments() == ["pipe"]
        with pytest.raises(SharedPoolError, match=r"pipe.jsonl is not a regular file"):
            place.read("pipe", None, MUCH)

    def test_a_replaced_segment_is_read_from_its_start(self, tmp_path: Path):
        (tmp_path / "ada.jsonl").write_bytes(b"1\n")
        assert open_place(str(tmp_path)).read("ada", "500", MUCH) == ([b"1"], "2")

    def test_a_kill_at_any_moment_leaves_whole_entries(self, tmp_path: Path):
        prepared = tmp_path / "prepared"
        prepared.mkdir()
        open_place(str(prepared)).append("ada", lines(entry(1)))
        copies = kill_at_every_change("pool_tasks:append", prepared, tmp_path / "victims")
        assert len(copies) > 2
        for copy in copies:
            place = open_place(str(copy))
            before, position = place.read("ada", None, MUCH)
            assert before in (lines(entry(1)), lines(entry(1), entry(2)), lines(entry(1), entry(2), entry(3)))
            open_place(str(copy)).append("ada", lines(entry(4)))
            assert place.read("ada", position, MUCH)[0] == lines(entry(4))


@pytest.mark.parametrize("url", ["", "/", "redis://", "redis://host", "redis://h:1/x/y", "redis://h:1/0/a b"])
def test_urls_that_name_no_pool(url: str):
    with pytest.raises(ValueError, match="expected"):
        check_url(url)


@pytest.mark.parametrize("url", ["redis://:secret@host:1/0/x", "s3://key:secret@bucket/x"])
def test_urls_with_passwords_are_refused_without_repeating_them(url: str):
    with pytest.raises(ValueError, match="password_env") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["gcs://bucket/prefix", "nonsense://bucket/prefix"])
def test_storage_that_fsspec_has_not_is_named(url: str):
    with pytest.raises(SharedPoolError, match=url):
        open_place(url)


def test_a_server_that_is_not_there_is_named():
    pytest.importorskip("redis", reason="the package redis is not installed")
    with pytest.raises(SharedPoolError, match=r"cannot read redis://127.0.0.1:9/0/x"):
        open_place("redis://127.0.0.1:9/0/x", seconds=1.0).segments()
