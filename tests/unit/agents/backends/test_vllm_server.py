"""A vLLM server as an engine, with a stand-in for it; `tests/vllm_engine` runs the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hacrl.agents.backends import vllm_weights
from hacrl.agents.errors import AgentError
from hacrl.agents.policy import Policy
from hacrl.recipe.agent_settings import LoraSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from helpers_agents import likelihood, random_rows, text_prompts, tiny_model, tiny_tokenizer, training_rows
from helpers_vllm_server import FakeServer, serve_vllm

GREEDY = SamplingSettings(max_new_tokens=6).as_greedy()
ROWS = training_rows(random_rows(3, 2))
UPDATE = [
    "/collective_rpc",
    "/reset_prefix_cache",
    "/weight_checker",
    "/weight_info",
    "/update_weight_version",
]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serve_vllm(FakeServer(tiny_model("qwen3"))) as server:
        yield server


def make(server: FakeServer, *, trains: bool = True, lora: bool = False, **changes: Any) -> Policy:
    return Policy(
        "ada",
        tiny_model("qwen3"),
        tiny_tokenizer(),
        optimiser=OptimiserSettings(learning_rate=1e-2, kl=0.0) if trains else None,
        lora=LoraSettings(rank=2) if lora else None,
        engine=VllmSettings(url=server.url, retries=0, **changes),
    )


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("files", [1, 3])
def test_every_update_reaches_the_server_before_it_samples(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: int, lora: bool
) -> None:
    size = sum(weight.nbytes for weight in tiny_model("qwen3").parameters())
    monkeypatch.setattr(vllm_weights, "BYTES_PER_FILE", size // files)
    policy, prompts = make(server, lora=lora, weights_folder=str(tmp_path)), text_prompts(3)
    plain = make_plain(lora)
    first = policy.sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in first] == [r.token_ids for r in plain.sample(prompts, 1, GREEDY, seed=0)]
    assert "/collective_rpc" not in server.paths, "it was started with these weights"
    for each in (policy, plain):
        each.update([ROWS], likelihood)
    server.paths.clear()
    second = policy.sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in second] == [r.token_ids for r in plain.sample(prompts, 1, GREEDY, seed=0)]
    assert [r.token_ids for r in second] != [r.token_ids for r in first]
    assert [r.engine.difference for r in second if r.engine] == pytest.approx([0.0] * 3, abs=1e-4)
    assert server.paths == ["/weight_checker", *UPDATE, *["/v1/completions"] * 3, "/weight_info"]
    assert lora or server.version == policy.fingerprint()
    assert not list(tmp_path.iterdir())


def make_plain(lora: bool) -> Policy:
    optimiser = OptimiserSettings(learning_rate=1e-2, kl=0.0)
    return Policy(
        "ada",
        tiny_model("qwen3"),
        tiny_tokenizer(),
        optimiser=optimiser,
        lora=LoraSettings(rank=2) if lora else None,
    )


def test_a_server_that_would_sample_with_old_weights_is_an_error(server: FakeServer) -> None:
    policy = make(server)
    server.forgetful = True
    policy.update([ROWS], likelihood)
    with pytest.raises(AgentError, match=r"agent 'ada'.*http://.*still does not hold the agent's weight"):
        policy.sample(text_prompts(1), 1, GREEDY, seed=0)
    assert not server.bodies


def test_a_server_that_has_lost_the_weights_gets_them_again(server: FakeServer) -> None:
    """As one that was restarted, or that somebody else has used."""
    policy, prompts = make(server), text_prompts(2)
    policy.update([ROWS], likelihood)
    before = policy.sample(prompts, 1, GREEDY, seed=0)
    with torch.no_grad():
        for weight in server.model.parameters():
            weight.zero_()
    server.version = "default"
    assert [r.token_ids for r in policy.sample(prompts, 1, GREEDY, seed=0)] == [r.token_ids for r in before]


def test_weights_that_change_while_it_draws_are_an_error(server: FakeServer) -> None:
    policy = make(server)
    completions = server.do_v1_completions

    def meddle(body: dict[str, Any]) -> Any:
        server.version = "somebody else's"
        return completions(body)

    server.do_v1_completions = meddle  # type: ignore[method-assign]
    with pytest.raises(AgentError, match=r"became others \(\"somebody else's\"\): no other run may use it"):
        policy.sample(text_prompts(1), 1, GREEDY, seed=0)


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("development", False, r"status 404.*start it with VLLM_SERVER_DEV_MODE=1"),
        (
            "packed",
            True,
            r"as vLLM does on CPUs: start it with --worker-extension-cls hacrl\.agents\.backends",
        ),
        ("place", "dp0:pp0:pcp0:tp1:", r"over several GPUs.*--tensor-parallel-size 1"),
    ],
)
def test_a_server_that_cannot_take_weights_serves_frozen_agents_only(
    server: FakeServer, attribute: str, value: Any, reason: str
) -> None:
    setattr(server, attribute, value)
    with pytest.raises(AgentError, match=rf"cannot take new weights: .*{reason}.*\(source: frozen\)"):
        make(server)
    frozen, plain = make(server, trains=False), Policy("ada", tiny_model("qwen3"), tiny_tokenizer())
    found = frozen.sample(text_prompts(2), 1, GREEDY, seed=0)
    wanted = plain.sample(text_prompts(2), 1, GREEDY, seed=0)
    assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
    assert "/collective_rpc" not in server.paths


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/v1/models", (200, []), "names no model of vLLM: engine.url has to be the address of a vLLM"),
        ("/v1/models", (401, {}), "status 401.*set engine.key_env"),
        (
            "/weight_checker",
            (200, {"checksums": 3}),
            "no checksums: engine.url has to be a server of vLLM 0.32",
        ),
        ("/collective_rpc", (500, "no such file"), "did not load the new weights.*engine.weights_folder"),
        ("/v1/completions", (200, {"choices": []}), "not a response with tokens and log-probs"),
        (
            "/v1/completions",
            (200, {"choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [None]}}]}),
            "not numbers",
        ),
        (
            "/v1/completions",
            (200, {"choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": [-1.0]}}]}),
            "of 2 tokens",
        ),
        (
            "/v1/completions",
            (503, "busy"),
            r"status 503.*check that the server runs, or raise engine\.retries",
        ),
    ],
)
def test_what_a_broken_server_answers_is_named(
    server: FakeServer, path: str, answer: tuple[int, Any], message: str
) -> None:
    def life() -> None:
        policy = make(server)
        policy.update([ROWS], likelihood)
        policy.sample(text_prompts(1), 1, GREEDY, seed=0)

    server.faults[path] = lambda: answer
    with pytest.raises(AgentError, match=rf"agent 'ada', http://[^ ]*{path}: .*{message}"):
        life()


def test_requests_carry_the_sampling_of_the_built_in_sampler(server: FakeServer) -> None:
    policy, prompts = make(server), text_prompts(2)
    sampling = SamplingSettings(
        max_new_tokens=200, temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, stop=("7",)
    )
    found = policy.sample(prompts, 2, sampling, seed=3)
    assert len({r.token_ids for r in found}) > 1
    fields = {
        key: {body[key] for body in server.bodies} for key in ("temperature", "top_p", "top_k", "min_p")
    }
    assert fields == {"temperature": {0.7}, "top_p": {0.9}, "top_k": {5}, "min_p": {0.1}}
    assert {tuple(body["stop"]) for body in server.bodies} == {("7",)}
    assert {tuple(body["stop_token_ids"]) for body in server.bodies} == {tuple(policy.encoder.eos_ids)}
    assert {body["repetition_penalty"] for body in server.bodies} == {1.0}
    seeds = sorted(body["seed"] for body in server.bodies)
    assert len(set(seeds)) == 4
    server.bodies.clear()
    policy.sample(prompts, 2, sampling, seed=3)
    assert sorted(body["seed"] for body in server.bodies) == seeds
    prompt = list(policy.encoder.encode_prompt(prompts[0]))
    assert {body["max_tokens"] for body in server.bodies if body["prompt"] == prompt} == {128 - len(prompt)}
