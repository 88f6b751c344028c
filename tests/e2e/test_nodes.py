"""Runs that join a Ray cluster of several nodes by its address: nodes are lost, the head is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hacrl.runtime import cluster
from hacrl.runtime.remote_agent import RemoteAgent
from helpers_nodes import Nodes
from helpers_train import Silent, final_weights, make_agent, outcome, recipe, responses, run

# Not `importorskip`: Ray has to be imported by hacrl, which sets it up.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'hacrl[ray]'"),
]

TRAIN = [sys.executable, "-m", "hacrl", "train"]
IMPATIENT = "import hacrl.runtime.cluster as c, hacrl.cli as i; c.HEAD_PATIENCE = 2.0; i.main()"
"""Waits for a silent head for 2 seconds instead of 20, where Ray is told to wait for 12 instead of 60."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("agents")
    agents = {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3, cut="digit-pairs")}
    return recipe(agents, steps=3, evaluation={"prompts": 3, "before": False})


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A head and three more nodes, which the tests use up; with the token that this process has anyway."""
    with cluster.ray_environment(loopback=True):  # as the tests that start a cluster of their own need it
        cluster.import_ray()
    with (
        tempfile.TemporaryDirectory(prefix="nodes-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_AUTH_TOKEN", cluster._own_token())
        patch.setenv(cluster.LOOPBACK_VARIABLE, "0")  # else Ray would not look for the head where it listens
        started = Nodes(3, cluster._own_token(), Path(folder))
        yield started
        started.close()


class NodeKiller:
    """Removes a node of an agent that is not the loop's own, at the n-th call to an agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: Nodes, moment: int) -> None:
        self.places: set[str] = set()
        self.victims: list[str] = []
        self._calls = 0
        request = RemoteAgent._request

        def counted(agent: RemoteAgent, method: str, *arguments: Any) -> Any:
            if hasattr(agent, "encoder") and agent._actors is not None:
                self._calls += 1
                table = agent._ray.util.placement_group_table(agent._actors._own._group)
                places = set(table["bundles_to_node_id"].values())
                self.places |= places
                if self._calls >= moment and not self.victims and places - {agent._node}:
                    self.victims.append(agent.name)
                    nodes.remove((places - {agent._node}).pop())
            return request(agent, method, *arguments)

        monkeypatch.setattr(RemoteAgent, "_request", counted)


def test_ranks_on_two_nodes_do_the_same_as_local_also_when_one_is_lost(
    nodes, settings, tmp_path, monkeypatch
):
    alone = settings | {
        "agents": settings["agents"][:1],
        "method": "gspo",
        "optimiser": {"learning_rate": 1e-4},
    }
    run(alone, tmp_path / "local")
    spread = [alone["agents"][0] | {"resources": {"ranks": 2, "nodes": 2}}]
    joined = {"name": "ray", "address": nodes.address, "deadline_seconds": 60}
    on_two = alone | {"agents": spread, "runtime": joined}
    run(on_two, tmp_path / "spread")
    assert responses(tmp_path / "spread") == responses(tmp_path / "local")
    ours, theirs = (final_weights(tmp_path / out, "ada") for out in ("spread", "local"))
    assert all((ours[key] - theirs[key]).abs().max() < 1e-5 for key in theirs)

    killer = NodeKiller(monkeypatch, nodes, 6)
    display = Silent()
    run(on_two, tmp_path / "disturbed", display=display)
    assert killer.victims == ["ada"]
    assert any("restarting it" in text for text in display.warnings)
    assert outcome(tmp_path / "disturbed") == outcome(tmp_path / "spread")


def test_an_agent_of_a_lost_node_comes_back_on_another_or_is_left_out(nodes, settings, tmp_path, monkeypatch):
    run(settings, tmp_path / "local")
    joined = {"name": "ray", "address": nodes.address, "deadline_seconds": 60}

    with monkeypatch.context() as patch:
        killer = NodeKiller(patch, nodes, 6)
        display = Silent()
        run(settings | {"runtime": joined}, tmp_path / "retry", display=display)
    assert len(killer.victims) == 1
    assert len(killer.places) == 3  # one CPU per node: two agents, one of which was on two
    assert outcome(tmp_path / "retry") == outcome(tmp_path / "local")
    assert any("its process is gone" in text and "restarting it" in text for text in display.warnings)

    with monkeypatch.context() as patch:
        killer = NodeKiller(patch, nodes, 6)
        left = run(settings | {"runtime": joined | {"on_failure": "degrade"}}, tmp_path / "degrade")
    (lost,) = killer.victims
    assert len(killer.places) == 2
    assert {name: bool(agent["retired"]) for name, agent in left["agents"].items()} == {
        name: name == lost for name in ("ada", "eve")
    }


def test_a_wrong_token_is_refused(nodes, settings, tmp_path):
    joined = settings | {
        "reward": {"verifier": "numeric"},
        "runtime": {"name": "ray", "address": nodes.address},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(joined))
    command = [*TRAIN, str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")]
    wrong = {"RAY_AUTH_TOKEN": "0" * 64, cluster.LOOPBACK_VARIABLE: "0", "RAY_NUM_REDIS_GET_RETRIES": "1"}
    told = subprocess.run(command, env=os.environ | wrong, capture_output=True, text=True)
    assert told.returncode == 2
    assert f"error: cannot use the Ray cluster at {nodes.address}" in told.stderr
    assert "Its token has to be in" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_run_whose_head_dies_ends_and_can_be_resumed(nodes, settings, tmp_path):
    """In a process of its own: where the run is on the head's machine, Ray may end it without a word."""
    alone = settings | {"agents": settings["agents"][:1], "method": "gspo", "reward": {"verifier": "numeric"}}
    endless = alone | {"steps": 100_000, "runtime": {"name": "ray", "address": nodes.address}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(endless))
    command = [sys.executable, "-c", IMPATIENT, "train", str(tmp_path / "recipe.yaml")]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        env=os.environ | {"RAY_gcs_rpc_server_reconnect_timeout_s": "12"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    checkpoints = tmp_path / "run" / "checkpoints"
    while not any(checkpoints.glob("step_????????")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    nodes.kill_head()
    told, _ = process.communicate(timeout=120)
    assert process.returncode in (1, 2), told
    if process.returncode == 2:
        assert f"error: the Ray cluster at {nodes.address} is lost" in told
    last = max(int(path.name.rpartition("_")[2]) for path in checkpoints.glob("step_????????"))
    on = endless | {"steps": last + 1, "runtime": "local"}
    assert run(on, tmp_path / "run", resume=True, reward_funcs=None)["steps"] == last + 1
