"""The process of a run: requests to stop it, and the CPU time it has used."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hacrl.rewards.processes import descendants


@dataclass
class StopRequest:
    """The signal that asked the run to stop, if any."""

    signal: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a request; a second one ends the process immediately.

    SIGHUP says that the terminal was closed. It may come twice for one reason, from the shell and from the
    kernel, so that only the others count as a second one. Under `nohup` it is ignored.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may handle signals
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal is None:
            request.signal = number
            with suppress(OSError):  # nobody may be reading any more
                print(
                    "\nFinishing this step, then saving. A second signal quits immediately.", file=sys.stderr
                )
        elif number != signal.SIGHUP:
            os._exit(128 + number)

    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def cpu_seconds() -> float:
    """CPU time used so far by this process and its descendants, including those that have ended.

    Unlike wall-clock time, it does not depend on how many runs share the machine.
    """
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + _living()


def _living() -> float:
    """CPU time of running descendants and of the children that they have reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # usually there are none, and /proc need not be scanned
        return 0.0
    ticks = 0
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it ended meanwhile
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")
