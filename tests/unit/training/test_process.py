"""CPU seconds of this process and of those below it."""

import subprocess
import sys
import time

from hacrl.training.process import cpu_seconds

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
