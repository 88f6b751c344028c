"""CPU time: what work costs, however many share the machine."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from hacrl.rewards.processes import descendants


def cpu_seconds() -> float:
    """Used so far by this process and by all below it, those that have ended included."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + _living()


def _living() -> float:
    """Of the processes below this one, and of the ended ones that they have collected."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # the usual case, told without looking through all processes
        return 0.0
    ticks = 0
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it ended meanwhile
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")
