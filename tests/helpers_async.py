"""Agents of one process, each in a thread of its own. As a script: a run that is killed and resumed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

import hacrl.training.team_setup
from hacrl.agents.policy import Policy
from hacrl.runtime import AgentLost
from hacrl.runtime.local_runtime import LocalRuntime
from helpers_train import make_agent, metrics, outcome, recipe, run
from helpers_train_kills import fork

T = TypeVar("T")


class Threads(LocalRuntime):
    """As Ray with `degrade`, without its processes."""

    def run(self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T | AgentLost]:
        with ThreadPoolExecutor(len(tasks), initializer=torch.set_num_threads, initargs=(1,)) as threads:
            futures = {name: threads.submit(_outcome, task) for name, task in tasks.items()}
            return {name: future.result() for name, future in futures.items()}


def _outcome(task: Callable[[], T]) -> T | AgentLost:
    try:
        return task()
    except AgentLost as lost:
        return lost


def asynchronous(settings: Mapping[str, Any], every: int, **changes: Any) -> dict[str, Any]:
    """The recipe with a barrier after so many steps."""
    return {
        **settings,
        "runtime": "ray",
        "exchange": {"asynchronous": changes},
        "checkpoint": {"every": every},
    }


def timeless(out: Path) -> dict[str, Any]:
    """A run's outcome without what only asynchronous runs record."""
    lines = [
        {key: value for key, value in line.items() if not key.startswith("async/")} for line in metrics(out)
    ]
    return outcome(out) | {"metrics": lines}


def main(folder: Path) -> None:
    """The same run three times: synchronous, killed in its third step, and that one resumed."""
    agents = {name: make_agent(folder / name, seed) for seed, name in enumerate(("ada", "eve"))}
    settings = recipe(agents, steps=5, evaluation={"prompts": 3, "before": False})
    assert fork(lambda: run(settings, folder / "whole")) == 0
    hacrl.training.team_setup.make_runtime = lambda recipe: Threads(recipe.runtime, {})
    changed = asynchronous(settings, every=2, max_staleness=0)
    assert fork(lambda: _die(lambda: run(changed, folder / "run"), draws=6)) == -signal.SIGKILL
    assert fork(lambda: run(changed, folder / "run", resume=True)) == 0


def _die(task: Callable[[], Any], draws: int) -> None:
    """End without warning when responses are drawn for the last of so many times."""
    real, left = Policy.sample, iter(range(draws - 1, -1, -1))

    def sample(*arguments: Any) -> Any:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    Policy.sample = sample
    task()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
