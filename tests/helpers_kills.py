"""Kills a task by SIGKILL at every change that it makes to the disk.

A task is a function of a directory, named "module:function". Run as a script, this imports the module once
and forks a victim for every kill; the tests look at what is left.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hacrl.runs import files
from hacrl.runs.files import append_jsonl, write_atomic
from hacrl.runs.json_files import truncate_jsonl

_CHANGES = ("rename", "replace", "mkdir", "rmdir", "unlink")


def kill_at_every_change(task: str, prepared: Path, victims: Path) -> list[Path]:
    """One copy of `prepared` for each change to the disk that `task` makes, left as a kill there leaves it.

    The last copy is the one where the task finished.
    """
    _run_script("every", task, str(prepared), str(victims))
    return sorted(victims.iterdir())


def run_alone(task: str, directory: Path) -> None:
    """Run a task that forks in a process of its own, where no other thread can be caught by the fork."""
    _run_script("once", task, str(directory))


def _run_script(*arguments: str) -> None:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def replace_file(directory: Path) -> None:
    write_atomic(directory / "file", b"new content")


def append_line(directory: Path) -> None:
    append_jsonl(directory / "lines.jsonl", {"step": 3})


def cut_lines(directory: Path) -> None:
    truncate_jsonl(directory / "lines.jsonl", lambda line: line["step"] < 2)


def _task(name: str) -> Callable[[Path], None]:
    module, function = name.split(":")
    found: Callable[[Path], None] = getattr(importlib.import_module(module), function)
    return found


def _once(task: str, directory: str) -> None:
    _task(task)(Path(directory))


def _every(task: str, prepared: str, victims: str) -> None:
    run = _task(task)
    for moment in range(1, 1000):
        victim = Path(victims) / f"{moment:04d}"
        shutil.copytree(prepared, victim)
        child = os.fork()
        if child == 0:
            _die_at(moment)
            run(victim)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, f"{task} failed at {moment}"
            return
    raise AssertionError("the task never finished")


def _die_at(moment: int) -> None:
    """Make this process die at its n-th change to the disk: before it, or half-way through a write."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            step()
            return function(*args, **kwargs)

        return call

    class TornFile(io.FileIO):
        def write(self, data: Any) -> int:
            half = len(data) // 2
            super().write(data[:half])
            step()
            return half + (super().write(data[half:]) or 0)

    def open_torn(path: Path, mode: str = "r", buffering: int = -1) -> io.FileIO:
        step()
        return TornFile(path, mode.replace("b", ""))

    def open_ours_torn(path: Path, flags: int) -> io.FileIO:
        return open_torn(path, "a" if flags & os.O_APPEND else "w")

    def save_torn(tensors: Any, path: Path) -> None:
        with open_torn(path, "wb") as file:
            file.write(sys.modules["safetensors.torch"].save(tensors))

    # A kill does not drop the system's caches, so a sync is just another moment to die: skip the disk.
    os.fsync = lambda descriptor: step()  # type: ignore[assignment,misc]
    for name in _CHANGES:
        setattr(os, name, before(getattr(os, name)))
    Path.open = open_torn  # type: ignore[assignment,method-assign]
    files._open_to_write = open_ours_torn
    if folder := sys.modules.get("hacrl.runs.checkpoint_format"):
        folder.save_file = save_torn  # type: ignore[attr-defined]


if __name__ == "__main__":
    {"every": _every, "once": _once}[sys.argv[1]](*sys.argv[2:])
