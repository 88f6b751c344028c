"""Requests to stop a run; CPU seconds of this process and of those below it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from hacrl.training.process import cpu_seconds, stop_requests

BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"


def test_children_count_while_they_live_and_after_and_waiting_does_not():
    before = cpu_seconds()
    time.sleep(0.05)
    assert cpu_seconds() - before < 0.05
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-S", "-c", BUSY], **pipes) as child:
        child.stdout.readline()
        living = cpu_seconds() - before
        child.communicate(b"\n")
    ended = cpu_seconds() - before
    assert living >= 0.45
    assert living - 0.05 <= ended < living + 0.4, "nothing is forgotten or counted twice at its end"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_a_request_and_a_hang_up_may_follow(number):
    before = signal.getsignal(number)
    with stop_requests() as stop:
        assert stop.signal is None
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGHUP)  # another one of the others would end the process
        assert stop.signal == number
    assert signal.getsignal(number) is before


def test_under_nohup_a_hang_up_is_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)
