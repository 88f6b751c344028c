"""What `kill_at_every_change` does to pools."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from hacrl.pool import open_place
from helpers_pool import entry, lines


def append(directory: Path) -> None:
    open_place(str(directory)).append("ada", lines(entry(2), entry(3)))


def killed_runs(folder: Path) -> None:
    """A run with a pool; then the same killed at six moments, each time resumed."""
    from helpers_train import make_agent, recipe, run
    from helpers_train_kills import _count, _die_at, fork

    os.environ["HACRL_POOL_KEY"] = "the key of all runs in this test"
    agent = make_agent(folder / "ada", 1)

    def train(out: Path, *, resume: bool = False) -> None:
        settings = {"method": "commons", "steps": 3, "exchange": {"pool": f"{out}-pool"}}
        run(recipe({"ada": agent}, **settings, evaluation={"prompts": 3}), out, resume=resume)

    total = folder / "total"
    assert fork(lambda: _count(lambda: train(folder / "whole"), total)) == 0
    for moment in random.Random(0).sample(range(1, int(total.read_text()) + 1), 6):
        victim = folder / f"killed-{moment:04d}"
        assert fork(lambda m=moment, v=victim: _die_at(m, lambda: train(v))) == -signal.SIGKILL
        begun = (victim / "config.json").exists()
        assert fork(lambda v=victim, b=begun: train(v, resume=b)) == 0, f"not resumed after {moment}"
