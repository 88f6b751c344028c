"""Find and kill the descendants of a process, also those that left its group or session."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PATIENCE = 10.0
"""Seconds after which descendants that will not die (stuck in the kernel) are left behind."""


def kill_descendants(pid: int) -> None:
    """SIGKILL everything below `pid`, again and again until nothing is left.

    The process has to have called `adopt_orphans`: then its descendants stay below it whatever they do.
    """
    if not Path("/proc/self").exists():  # not Linux: the group is all that can be found
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    give_up = time.monotonic() + PATIENCE
    while (children := descendants(pid)) and time.monotonic() < give_up:
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`; none where there is no /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for process in _processes():
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children[int(parent)].append(int(process.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _processes() -> list[Path]:
    """A folder for each; by name, because a glob looks into them and fails when one ends meanwhile."""
    proc = Path("/proc")
    return [proc / name for name in os.listdir(proc) if name.isdigit()] if proc.exists() else []


def reap() -> None:
    """Collect dead children without waiting for living ones."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def tasks_of_this_user() -> int:
    """How many processes and threads the user has, which is what the kernel counts."""
    count = 0
    for process in _processes():
        with contextlib.suppress(OSError):  # it ended meanwhile
            tasks = process / "task"
            count += len(os.listdir(tasks)) if tasks.stat().st_uid == os.getuid() else 0
    return count
