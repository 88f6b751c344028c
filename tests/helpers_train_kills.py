"""Kills whole runs by SIGKILL inside every phase and every write, and resumes them.

Run as a script, this imports once and forks a process for every run; the test looks at what is left.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hacrl.agents.policy import Policy
from hacrl.agents.updater import Updater
from hacrl.rewards import Rewarder
from helpers_train import make_agent, recipe, run

MOMENTS: list[tuple[Any, str]] = [
    *[(os, name) for name in ("fsync", "replace", "rename", "unlink", "mkdir")],
    *[(Policy, name) for name in ("sample", "fingerprint", "write_state", "save")],
    (Updater, "update"),
    (Rewarder, "score"),
]
"""Before each of these calls a run may die: between and inside phases, and at every change to the disk."""


def main(folder: Path, kills: int) -> None:
    agents = {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3, cut="digit-pairs")}
    settings = recipe(agents, steps=3, evaluation={"prompts": 3, "every": 2})
    total = folder / "total"
    assert fork(lambda: _count(lambda: run(settings, folder / "whole"), total)) == 0
    moments = random.Random(0).sample(range(1, int(total.read_text()) + 1), kills)
    for moment in moments:
        victim = folder / f"killed-{moment:04d}"
        assert fork(lambda m=moment, v=victim: _die_at(m, lambda: run(settings, v))) == -signal.SIGKILL
        resume = (victim / "config.json").exists()  # killed before it began: begin again
        assert fork(lambda v=victim, r=resume: run(settings, v, resume=r)) == 0, f"not resumed after {moment}"


def fork(task: Callable[[], Any]) -> int:
    """The exit code of a process that does the task; below 0: the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            task()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _before_each(step: Callable[[], None]) -> None:
    for owner, name in MOMENTS:
        real = getattr(owner, name)

        def call(*args: Any, _real: Any = real, **kwargs: Any) -> Any:
            step()
            return _real(*args, **kwargs)

        setattr(owner, name, call)


def _count(task: Callable[[], Any], total: Path) -> None:
    calls: list[None] = []
    _before_each(lambda: calls.append(None))
    task()
    total.write_text(str(len(calls)))


def _die_at(moment: int, task: Callable[[], Any]) -> None:
    calls: list[None] = []

    def step() -> None:
        calls.append(None)
        if len(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    _before_each(step)
    task()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
