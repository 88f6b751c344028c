"""A real vLLM server on the loopback interface as the engine of one agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from hacrl.agents.errors import AgentError, ServerAway
from hacrl.agents.json_client import JsonClient
from hacrl.agents.policy import Policy
from hacrl.recipe.agent_settings import EndpointSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from helpers_agents import likelihood, text_prompts, training_rows
from helpers_real_vllm import BOUND, HELPERS, TRAIN, largest_difference
from helpers_train import make_agent, metrics, recipe, run

pytest.importorskip("vllm", reason="vLLM needs an environment of its own: make test-vllm")

START_SECONDS = 300
GREEDY = SamplingSettings(max_new_tokens=20).as_greedy()
ROWS = training_rows([((3, 4, 5), (6, 7, 8, 1)), ((5, 4), (9, 9, 1))])


class Server:
    """vLLM's own server for a model of this test, as docs/vllm.md starts it."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder.parent / f"server-{port}.log"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
        command += ["--kv-cache-memory-bytes", "50000000", *options]
        environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, "the server did not start"
            try:
                with urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(1)

    def kill(self) -> None:
        """All of its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


PLAIN = ("--worker-extension-cls", "hacrl.agents.backends.vllm_plain_weights.PlainWeights")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_agent(tmp_path_factory.mktemp("models") / "ada", 0, width=64)


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    started = Server(model, *PLAIN)
    yield started
    started.kill()


def agent(model: Path, url: str | None = None, *, trains: bool = True) -> Policy:
    optimiser = OptimiserSettings(learning_rate=1e-2, kl=0.0) if trains else None
    engine = None if url is None else VllmSettings(url=url, retries=0)
    return Policy.load("ada", model, optimiser=optimiser, engine=engine)


def test_the_same_greedy_responses_after_every_update(server: Server, model: Path) -> None:
    policy, plain, prompts = agent(model, server.url), agent(model), text_prompts(6)
    seen = set()
    for _ in range(3):
        found = policy.sample(prompts, 1, GREEDY, seed=0)
        wanted = plain.sample(prompts, 1, GREEDY, seed=0)
        assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
        assert [r.finish_reason for r in found] == [r.finish_reason for r in wanted]
        assert largest_difference(found) < BOUND
        seen.add(tuple(r.token_ids for r in found))
        for each in (policy, plain):
            each.update([ROWS], likelihood)
    assert len(seen) == 3
    drawn = policy.sample(prompts, 3, SamplingSettings(max_new_tokens=20), seed=0)
    again = policy.sample(prompts, 3, SamplingSettings(max_new_tokens=20), seed=0)
    assert [r.token_ids for r in drawn] == [r.token_ids for r in again]
    assert len({r.token_ids for r in drawn}) > 6
    assert largest_difference(drawn) < BOUND
    print(f"server: largest difference of a token's log-prob {largest_difference(drawn):.2g}")


def test_weights_that_somebody_else_has_loaded_are_replaced(
    server: Server, model: Path, tmp_path: Path
) -> None:
    policy, prompts = agent(model, server.url), text_prompts(3)
    before = policy.sample(prompts, 1, GREEDY, seed=0)
    client = JsonClient("eve", EndpointSettings(url=server.url, retries=0))
    other = make_agent(tmp_path / "other", 7, width=64)
    client.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(other)}})
    after = policy.sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in after] == [r.token_ids for r in before]


def test_a_server_with_old_weights_is_an_error(
    server: Server, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = agent(model, server.url)
    policy.update([ROWS], likelihood)
    ask = JsonClient.ask

    def forgetful(self: JsonClient, path: str, body: Any = None, refusals: Any = ()) -> Any:
        return {"results": [None]} if path == "/collective_rpc" else ask(self, path, body, refusals)

    monkeypatch.setattr(JsonClient, "ask", forgetful)
    with pytest.raises(AgentError, match="still does not hold the agent's weight"):
        policy.sample(text_prompts(1), 1, GREEDY, seed=0)


def two_agents(folder: Path, model: Path, url: str, **changes: Any) -> dict[str, Any]:
    settings = recipe({"ada": model, "bob": make_agent(folder / "bob", 1, width=64)}, steps=2, **changes)
    settings["agents"][0]["engine"] = {"name": "vllm", "url": url}
    return settings


def test_it_draws_the_next_step_while_its_agent_is_updated(
    server: Server, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = two_agents(tmp_path, model, server.url, sample_ahead={}, evaluation={"before": False})
    run(settings, tmp_path / "run")
    first, second = (line for line in metrics(tmp_path / "run") if "agent/ada/reward" in line)
    assert first["agent/ada/engine/logp_difference_max"] < BOUND
    assert "agent/ada/engine/logp" not in second, "the weights that drew have gone"
    assert second["agent/ada/ahead/logp_difference_max"] > 0
    assert 0 < second["agent/ada/ahead/weight"] <= 2
    start = Policy.start_sampling

    def at_once(self: Policy, *arguments: Any) -> bool:
        """Wait for the responses before anything else is done."""
        started = start(self, *arguments)
        if started:
            drawn = self.finish_sampling()
            monkeypatch.setattr(self, "finish_sampling", lambda: drawn)
        return started

    monkeypatch.setattr(Policy, "start_sampling", at_once)
    run(settings, tmp_path / "at_once")
    again = [line for line in metrics(tmp_path / "at_once") if "agent/ada/reward" in line]
    assert again[1]["agent/ada/reward"] == second["agent/ada/reward"]


def check(out: Path) -> None:
    lines = [line for line in metrics(out) if "agent/ada/engine/logp" in line]
    assert len(lines) == 2
    for line in lines:
        assert line["agent/ada/engine/rescored"] == 0
        assert line["agent/ada/engine/logp_difference_max"] < BOUND
        assert line["agent/ada/grad_norm"] > 0.01
        assert "agent/bob/engine/logp" not in line


def test_one_of_two_agents_uses_the_server(server: Server, model: Path, tmp_path: Path) -> None:
    run(two_agents(tmp_path, model, server.url), tmp_path / "run")
    check(tmp_path / "run")


def test_on_ray_too(server: Server, model: Path, tmp_path: Path) -> None:
    settings = two_agents(tmp_path, model, server.url, runtime="ray")
    (tmp_path / "recipe.json").write_text(json.dumps(settings))
    subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, env=os.environ | HELPERS, check=True)
    check(tmp_path / "run")


def test_a_server_that_packs_its_weights_serves_frozen_agents_until_it_is_killed(model: Path) -> None:
    packed = Server(model)
    try:
        with pytest.raises(AgentError, match=r"as vLLM does on CPUs.*PlainWeights.*\(source: frozen\)"):
            agent(model, packed.url)
        frozen, prompts = agent(model, packed.url, trains=False), text_prompts(3)
        found = frozen.sample(prompts, 1, GREEDY, seed=0)
        wanted = agent(model).sample(prompts, 1, GREEDY, seed=0)
        assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
    finally:
        packed.kill()
    with pytest.raises(ServerAway, match=r"agent 'ada', http://127\.0\.0\.1.*check that the server runs"):
        frozen.sample(prompts, 1, GREEDY, seed=0)
