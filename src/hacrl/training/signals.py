"""Ctrl-C and SIGTERM: the first asks for a good end, the second leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Which signal asked the run to stop, if any."""

    signal: int | None = None


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; a second one ends the process immediately."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may handle signals
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal is not None:
            os._exit(128 + number)
        request.signal = number
        print("\nFinishing this step, then saving. Once more to leave at once.", file=sys.stderr)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
