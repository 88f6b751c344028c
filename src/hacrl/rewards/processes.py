"""Kill a process with all its descendants, also those that left its group or session."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PATIENCE = 10.0
"""Seconds after which descendants that will not die (stuck in the kernel) are left behind."""


def kill_tree(pid: int, spare_root: bool = False) -> None:
    """SIGKILL everything below `pid`, again and again until nothing is left, then `pid` itself.

    The root has to have called `adopt_orphans`: then descendants stay below it whatever they do.
    """
    give_up = time.monotonic() + PATIENCE
    while (children := descendants(pid)) and time.monotonic() < give_up:
        for child in children:
            _kill(child)
        if spare_root:
            reap()
        time.sleep(0.002)
    if not spare_root:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _kill(pid)


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`; none where there is no /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children[int(parent)].append(int(entry.parent.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def reap() -> None:
    """Collect dead children without waiting for living ones."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
