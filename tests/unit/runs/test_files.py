from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError, append_jsonl, digest, make_directory, write_atomic, write_synced
from hacrl.runs.json_files import is_integer, is_number, parse_json, read_json, read_jsonl, truncate_jsonl
from helpers_kills import kill_at_every_change


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def raising(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for data in (b"first", b"second, longer", b""):
        write_atomic(path, data)
        assert path.read_bytes() == data
    assert names(tmp_path) == ["config.json"]


def test_a_kill_while_replacing_leaves_the_old_or_the_new_content(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / "file").write_bytes(b"old")
    left = [
        (path / "file").read_bytes()
        for path in kill_at_every_change("helpers_kills:replace_file", prepared, tmp_path / "v")
    ]
    assert len(left) >= 5
    assert left[0] == b"old"
    assert left[-1] == b"new content"
    assert set(left) == {b"old", b"new content"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_replacement_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "config.json"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, "fsync", raising(code))
    with pytest.raises(StorageError, match=rf"config\.json.*: {os.strerror(code)}"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["config.json"]


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    file, much = tmp_path / "file", "x" * 5000
    for write in (
        lambda: write_synced(file, much.encode()),
        lambda: write_atomic(file, much.encode()),
        lambda: append_jsonl(file, {"text": much}),
    ):
        with pytest.raises(StorageError, match=r"file: File too large \(free some space"):
            write()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [make_fifo, make_loop, Path.mkdir], ids=["pipe", "loop", "directory"])
def test_what_is_no_file_is_neither_read_nor_written_and_nothing_waits(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "metrics.jsonl"
    make(path)
    for use in (
        lambda: read_json(path),
        lambda: read_jsonl(path),
        lambda: digest(path),
        lambda: append_jsonl(path, {}),
        lambda: write_synced(path, b""),
        lambda: truncate_jsonl(path, lambda line: True),
    ):
        with pytest.raises(StorageError, match=r"metrics\.jsonl"):
            use()
    assert os.path.lexists(path)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """A run directory of somebody else's may hold links to the user's files."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("metrics.jsonl", ".config.json.tmp"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(StorageError, match=r"cannot append to .*metrics\.jsonl"):
        append_jsonl(tmp_path / "metrics.jsonl", {"step": 1})
    write_atomic(tmp_path / "config.json", b"{}")
    assert (tmp_path / "config.json").read_bytes() == b"{}"
    (tmp_path / "run.lock").symlink_to(victim)
    with pytest.raises(StorageError, match=r"cannot lock .*run\.lock"), RunDirectory.resume(tmp_path):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.skipif(not Path("/dev/null").is_char_device(), reason="needs /dev/null")
def test_a_device_is_not_replaced() -> None:
    with pytest.raises(StorageError, match="/dev/null is not a regular file and is not replaced"):
        write_atomic(Path("/dev/null"), b"")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_directory_without_rights_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "mkdir", raising(code))
    with pytest.raises(
        StorageError, match=r"cannot create .*new: .* \(make the directory readable and writable"
    ):
        make_directory(tmp_path / "new")


def test_missing_directories_and_files_in_the_way_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/below: Not a directory \(a part of the path is a file"):
        make_directory(tmp_path / "file" / "below")
    with pytest.raises(StorageError, match=r"nowhere/x: No such file or directory \(check the path"):
        write_atomic(tmp_path / "nowhere" / "x", b"")
    make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


@given(st.binary(max_size=300))
def test_the_digest_is_sha256(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "digested"
    path.write_bytes(data)
    assert digest(path) == hashlib.sha256(data).hexdigest()


def test_lines_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    records = [{"step": 1, "loss": 0.1, "text": "a\nb\r\u2028"}, {"step": 2, "nested": {"x": [None, 1]}}]
    for record in records:
        append_jsonl(path, record)
    assert read_jsonl(path) == records


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "nested more than 64 levels deep"),
        (b'{"a": ' * 65 + b"1" + b"}" * 65, "nested more than 64 levels deep"),
        (b'{"a": Infinity}', "Infinity is not a number"),
        (b'{"a": "\x00"}', "Invalid control character"),
        (b'{"a": "\xff"}', "invalid start byte"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b"\x00" * 10, "Expecting value"),
        (b"", "Expecting value"),
    ],
)
def test_json_that_is_refused_is_named_by_its_line(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b"\n")
    with pytest.raises(StorageError, match=rf"metrics\.jsonl, line 2 is not JSON: .*{reason}"):
        read_jsonl(path)
    path.write_bytes(line)
    with pytest.raises(StorageError, match=rf"metrics\.jsonl is not JSON: .*{reason}"):
        read_json(path)


@pytest.mark.parametrize(
    ("text", "whole", "number"),
    [
        ("1", 1, 1),
        ("1.5", 0, 1),
        ("true", 0, 0),
        ("1e999", 0, 0),
        ("-1e301", 0, 0),
        ("9" * 30, 0, 1),
        ("9" * 400, 0, 0),
        ('"1"', 0, 0),
        ("null", 0, 0),
    ],
)
def test_what_counts_as_a_number(text: str, whole: int, number: int) -> None:
    assert (is_integer(parse_json(text.encode())), is_number(parse_json(text.encode()))) == (whole, number)


@pytest.mark.parametrize("value", [math.nan, math.inf, {1}])
def test_what_json_cannot_say_is_refused_and_nothing_written(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(TypeError, match=r"metrics\.jsonl: a line cannot be written as JSON"):
        append_jsonl(path, {"step": 1, "loss": value})
    assert not path.exists()


def test_a_line_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, {"step": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageError, match=r"append to .*metrics\.jsonl: File too large"):
            append_jsonl(path, {"step": 2, "text": "x" * 200})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b'{"step": 1}\n'


def test_a_kill_while_appending_leaves_the_earlier_lines(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    for step in (1, 2):
        append_jsonl(prepared / "lines.jsonl", {"step": step})
    victims = kill_at_every_change("helpers_kills:append_line", prepared, tmp_path / "v")
    torn = [path for path in victims if not (path / "lines.jsonl").read_bytes().endswith(b"\n")]
    assert torn
    for victim in victims:
        steps = [line["step"] for line in read_jsonl(victim / "lines.jsonl")]
        assert steps in ([1, 2], [1, 2, 3])
        truncate_jsonl(victim / "lines.jsonl", lambda line: line["step"] <= 2)
        append_jsonl(victim / "lines.jsonl", {"step": 3})
        assert [line["step"] for line in read_jsonl(victim / "lines.jsonl")] == [1, 2, 3]


def test_a_kill_while_cutting_leaves_all_lines_or_the_cut_ones(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    for step in (1, 2):
        append_jsonl(prepared / "lines.jsonl", {"step": step})
    left = [
        (path / "lines.jsonl").read_bytes()
        for path in kill_at_every_change("helpers_kills:cut_lines", prepared, tmp_path / "v")
    ]
    assert left[0] == b'{"step": 1}\n{"step": 2}\n'
    assert left[-1] == b'{"step": 1}\n'
    assert set(left) == {left[0], left[-1]}


@given(steps=st.lists(st.integers(0, 9), max_size=8), last=st.integers(0, 9), torn=st.integers(0, 20))
def test_cutting_keeps_exactly_the_lines_asked_for(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], last: int, torn: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    lines = [json.dumps({"step": step, "place": place}) + "\n" for place, step in enumerate(steps)]
    path.write_text("".join(lines) + '{"step": 0, "place": -1}'[:torn])
    truncate_jsonl(path, lambda line: line["step"] <= last)
    kept = [line for line, step in zip(lines, steps, strict=True) if step <= last]
    assert path.read_text() == "".join(kept)


def test_a_bad_line_is_named_and_nothing_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for bad, reason in ((b"{oops}\n", "not JSON"), (b"[1]\n", "not a JSON object"), (b"\xff\n", "not JSON")):
        path.write_bytes(b'{"step": 1}\n' + bad + b'{"step": 2}\n')
        with pytest.raises(StorageError, match=rf"metrics\.jsonl, line 2 is {reason}"):
            truncate_jsonl(path, lambda line: False)
        assert path.read_bytes() == b'{"step": 1}\n' + bad + b'{"step": 2}\n'


def test_a_missing_file_has_nothing_to_cut(tmp_path: Path) -> None:
    truncate_jsonl(tmp_path / "metrics.jsonl", lambda line: False)
    assert names(tmp_path) == []
    with pytest.raises(StorageError, match=r"cannot read .*metrics\.jsonl: No such file"):
        read_jsonl(tmp_path / "metrics.jsonl")
