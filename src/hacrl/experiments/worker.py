"""One run of a comparison in a process of its own. It ends when its parent does.

Standard input brings the job as one line of JSON and then stays open: it closes when the parent ends,
however it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading


def main() -> int:
    """Do the job on standard input; returns the exit code."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    from hacrl.config import parse_recipe
    from hacrl.training.run import Stopped
    from hacrl.training.trainer import train

    try:
        train(parse_recipe(job["recipe"]), job["out"], resume=job["resume"])
    except Stopped as stopped:
        return 128 + stopped.signal
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)  # what is lost is done again from the last checkpoint


if __name__ == "__main__":
    sys.exit(main())
