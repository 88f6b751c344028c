"""Asynchronous runs in real processes, killed and resumed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers_async import asynchronous, timeless
from helpers_train import make_agent, metrics, recipe, run

pytestmark = pytest.mark.slow


def test_a_killed_run_resumes_to_the_result_of_the_undisturbed_one(tmp_path):
    script = str(Path(__file__).parents[1] / "helpers_async.py")
    done = subprocess.run([sys.executable, script, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert timeless(tmp_path / "run") == timeless(tmp_path / "whole")


@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'hacrl[ray]'")
def test_agents_on_ray_receive_from_each_other_within_the_bound(tmp_path):
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ada", "eve"))}
    settings = recipe(agents, steps=4, evaluation={"prompts": 3, "before": False}, method="naive")
    summary = run(asynchronous(settings, every=4, max_staleness=1), tmp_path / "run")
    assert summary["steps"] == 4
    lines = metrics(tmp_path / "run")
    for learner, source in (("ada", "eve"), ("eve", "ada")):
        assert all(0 <= line[f"async/{learner}/staleness"] <= 1 for line in lines)
        assert all(line[f"async/{learner}/dropped"] == 0 for line in lines)
        received = sum(line.get(f"cross/{source}->{learner}/rows", 0) for line in lines)
        assert received == 4 * 4 * 4  # everything, once
    assert sorted(os.listdir(tmp_path / "run" / "trajectories")) == [
        f"step_{step:06d}.jsonl" for step in range(1, 5)
    ]
