"""An agent of two ranks on a real Ray: equals one process up to rounding."""

from __future__ import annotations

import copy
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from hacrl.agents.blueprint import Blueprint
from hacrl.recipe.agent_settings import AgentSettings, ResourcesSettings
from hacrl.recipe.settings import RuntimeSettings
from hacrl.runtime import AgentLost
from hacrl.runtime.ray_runtime import RayRuntime
from helpers_train import final_weights, make_agent, no_process_left, recipe, responses, run

# Not `importorskip`: Ray has to be imported by hacrl, which sets it up.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'hacrl[ray]'"),
]


def settings(agent: Path, **changes: Any) -> dict[str, Any]:
    small = {
        "method": "gspo",
        "optimiser": {"learning_rate": 1e-4},
        "evaluation": {"prompts": 3, "before": False},
        "checkpoint": {"every": 1},
    }
    return recipe({"ada": agent}, **small | changes)


def test_two_ranks_equal_local_and_one_process_resumes_their_checkpoint(tmp_path):
    model = make_agent(tmp_path / "ada", 1)
    run(settings(model, steps=3), tmp_path / "local")

    ranked = settings(model, steps=2, runtime="ray")
    ranked["agents"][0]["resources"] = {"ranks": 2}
    with no_process_left():
        run(ranked, tmp_path / "ranks")
    run(settings(model, steps=2), tmp_path / "two")
    assert responses(tmp_path / "ranks") == responses(tmp_path / "two")
    same(tmp_path / "ranks", tmp_path / "two")

    shutil.copytree(tmp_path / "ranks", tmp_path / "resumed")
    run(settings(model, steps=3), tmp_path / "resumed", resume=True)
    assert responses(tmp_path / "resumed") == responses(tmp_path / "local")
    same(tmp_path / "resumed", tmp_path / "local")


def test_agents_that_share_devices_equal_local(tmp_path):
    agents = {"ada": make_agent(tmp_path / "ada", 1), "eve": make_agent(tmp_path / "eve", 3, "qwen3")}
    settled = recipe(agents, steps=2, evaluation={"prompts": 3, "before": False})
    run(settled, tmp_path / "local")
    shared = copy.deepcopy(settled | {"runtime": {"name": "ray", "share_devices": True}})
    shared["agents"][1]["resources"] = {"ranks": 2}
    with no_process_left():
        run(shared, tmp_path / "shared")
    assert responses(tmp_path / "shared") == responses(tmp_path / "local")
    for name in agents:
        same(tmp_path / "shared", tmp_path / "local", name)


def same(one: Path, other: Path, name: str = "ada") -> None:
    ours, theirs = final_weights(one, name), final_weights(other, name)
    assert ours.keys() == theirs.keys()
    assert all((ours[key] - theirs[key]).abs().max() < 1e-5 for key in theirs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU that must not be there")
def test_an_agent_that_does_not_fit_is_an_error_that_says_what_is_missing(tmp_path):
    runtime = RayRuntime(RuntimeSettings(start_seconds=2), {"ada": ResourcesSettings(gpus=1, ranks=2)})
    missing = r"no room within 2 s: it needs 2 CPUs and 2 GPUs on 1 machine .*0 GPUs"
    with no_process_left(), pytest.raises(AgentLost, match=missing):
        runtime.load([Blueprint(AgentSettings(name="ada", model=str(tmp_path)))])
