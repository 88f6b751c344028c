"""Carries out runs one after another. Importing torch takes seconds: a worker does it once.

Every line of JSON on standard input is a job, answered on standard output by the number of the process that
does it and, when that has ended, by its exit code. Each run is a fork of the worker, made while it has one
thread and has run nothing yet: no run can leave anything behind for the next one, or take it down.

Standard input closes when the parent ends, however it ends. Then the worker and its run end too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from typing import Any


def main() -> None:
    """Do the jobs on standard input until it closes."""
    import hacrl.training.trainer  # noqa: F401  (what every run needs)

    while line := sys.stdin.readline():
        job = json.loads(line)
        run = os.fork()
        if run == 0:
            os._exit(_carry_out(job))
        print(run, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]), flush=True)


def _carry_out(job: dict[str, Any]) -> int:
    """The run itself, in a process of its own; returns its exit code."""
    from hacrl.recipe import parse_recipe
    from hacrl.training.run import Stopped
    from hacrl.training.trainer import train

    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        train(parse_recipe(job["recipe"]), job["out"], resume=job["resume"])
        return 0
    except Stopped as stopped:
        return 128 + stopped.signal
    except BaseException:  # whatever ends a run must not unwind into the worker's own loop
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _end_with_parent() -> None:
    os.read(0, 1)  # no job comes while one is going on: this returns when the parent has ended
    os.kill(os.getpid(), signal.SIGKILL)  # what is lost is done again from the last checkpoint


if __name__ == "__main__":
    main()
