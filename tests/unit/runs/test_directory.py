from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError, write_atomic

HOLDER = """
import os, signal, sys
from pathlib import Path
from hacrl.runs.directory import RunDirectory

with RunDirectory.create(Path(sys.argv[1])) as run:
    run.config.write_text("{}")
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    signal.pause()
"""


def start_run(path: Path) -> None:
    with RunDirectory.create(path) as run:
        write_atomic(run.config, b"{}")


def test_a_new_run_gets_its_layout(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "runs" / "first") as run:
        assert sorted(path.name for path in run.path.iterdir()) == [
            "agents",
            "checkpoints",
            "run.lock",
            "trajectories",
        ]
        paths = (run.config, run.metrics, run.summary, run.trajectories, run.checkpoints, run.agents)
    assert [str(path.relative_to(tmp_path / "runs" / "first")) for path in paths] == [
        "config.json",
        "metrics.jsonl",
        "summary.json",
        "trajectories",
        "checkpoints",
        "agents",
    ]


@pytest.mark.parametrize(
    "trace", ["config.json", "metrics.jsonl", "summary.json", "agents/a", "checkpoints/a"]
)
def test_a_directory_with_a_run_is_not_started_again(tmp_path: Path, trace: str) -> None:
    path = tmp_path / trace
    path.parent.mkdir(exist_ok=True)
    path.touch()
    with (
        pytest.raises(
            StorageError, match=r"already holds a run: continue it with --resume or use another --out"
        ),
        RunDirectory.create(tmp_path),
    ):
        pass


def test_a_run_killed_before_its_config_was_written_can_start_again(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path):
        pass
    start_run(tmp_path)


def test_a_run_is_resumed_and_a_directory_without_one_stays_untouched(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, tmp_path / "missing"):
        with (
            pytest.raises(StorageError, match=rf"{path.name} holds no run to resume \(no config\.json\)"),
            RunDirectory.resume(path),
        ):
            pass
    assert list(empty.iterdir()) == []
    assert not (tmp_path / "missing").exists()
    start_run(tmp_path / "run")
    with RunDirectory.resume(tmp_path / "run") as run:
        assert run.config.read_bytes() == b"{}"


def test_a_second_run_is_refused_until_the_first_is_over(tmp_path: Path) -> None:
    start_run(tmp_path)
    with RunDirectory.resume(tmp_path):
        for again in (RunDirectory.resume, RunDirectory.create):
            with pytest.raises(StorageError, match=f"is in use by process {os.getpid()} on"), again(tmp_path):
                pass
    with RunDirectory.resume(tmp_path):
        pass


def test_an_error_inside_releases_the_lock(tmp_path: Path) -> None:
    start_run(tmp_path)
    with pytest.raises(ZeroDivisionError), RunDirectory.resume(tmp_path):
        _ = 1 / 0
    with RunDirectory.resume(tmp_path):
        pass


def test_the_lock_of_a_killed_process_does_not_block_even_if_its_worker_lives(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLDER, run], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        worker = int(holder.stdout.readline())
        try:
            with pytest.raises(StorageError, match=f"process {holder.pid} on"), RunDirectory.resume(run):
                pass
            holder.kill()
            holder.wait()
            os.kill(worker, 0)
            with RunDirectory.resume(run) as resumed:
                assert str(os.getpid()) in resumed.lock.read_text()
        finally:
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize(("name", "code"), [("mkdir", errno.EROFS), ("open", errno.EACCES)])
def test_a_directory_without_rights_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, fail)
    with (
        pytest.raises(
            StorageError,
            match=rf"{tmp_path}.*: {os.strerror(code)} \(make the directory readable and writable",
        ),
        RunDirectory.create(tmp_path / "run"),
    ):
        pass


def test_a_drive_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with (
        pytest.raises(StorageError, match=r"cannot lock .*run\.lock: No locks"),
        RunDirectory.create(tmp_path),
    ):
        pass


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with (
        pytest.raises(StorageError, match=r"cannot create .*run: File exists"),
        RunDirectory.create(tmp_path / "run"),
    ):
        pass
