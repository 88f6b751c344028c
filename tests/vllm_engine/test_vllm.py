"""The real vLLM beside the built-in sampler. `make test-vllm` runs this in an environment of its own."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from hacrl.agents.errors import EngineFailed
from hacrl.agents.policy import Policy
from hacrl.agents.sampler import nucleus
from hacrl.agents.settings import Optimisation, Sampling, VllmSettings
from hacrl.types import Prompt, Rollout
from helpers_agents import CONFIGS, likelihood, random_rows, text_prompts, tiny_tokenizer, training_rows
from helpers_train import make_agent, metrics, recipe, run

pytest.importorskip("vllm", reason="vLLM needs an environment of its own: make test-vllm")

ARCHITECTURES = ("llama", "qwen2", "qwen3")
BOUND = 1e-4
"""Largest difference of one token's log-prob in fp32; docs/vllm.md has what was measured."""
SMOLLM2 = os.environ.get("HACRL_SMOLLM2", "")
SMALL_CACHE = VllmSettings(cache_gigabytes=0.05, max_rows=64)
GREEDY = Sampling(max_new_tokens=40, greedy=True)


def network(architecture: str) -> PreTrainedModel:
    """As small as vLLM's attention on CPU allows: 32 numbers per head."""
    config = copy.deepcopy(CONFIGS[architecture])
    config.hidden_size, config.head_dim = 128, 32
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def built_in(architecture: str) -> Policy:
    optimisation = Optimisation(learning_rate=1e-2)
    return Policy("ada", network(architecture), tiny_tokenizer(), optimisation=optimisation)


@cache
def started(architecture: str) -> tuple[Policy, dict[str, torch.Tensor]]:
    """An agent with vLLM, which takes seconds to start, and its first weights."""
    optimisation = Optimisation(learning_rate=1e-2)
    policy = Policy(
        "ada", network(architecture), tiny_tokenizer(), optimisation=optimisation, engine=SMALL_CACHE
    )
    return policy, policy.state()


def by_vllm(architecture: str) -> Policy:
    """With its first weights again."""
    policy, state = started(architecture)
    policy.load_state(state)
    return policy


def largest_difference(rollouts: Sequence[Rollout]) -> float:
    return max(rollout.engine.difference for rollout in rollouts if rollout.engine)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_same_greedy_answers_with_the_same_log_probs(architecture: str) -> None:
    prompts = text_prompts(12)
    found = by_vllm(architecture).sample(prompts, 1, GREEDY, seed=0)
    wanted = built_in(architecture).sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
    assert [r.text for r in found] == [r.text for r in wanted]
    assert [r.finish_reason for r in found] == [r.finish_reason for r in wanted]
    drawn = by_vllm(architecture).sample(prompts, 4, Sampling(max_new_tokens=40), seed=0)
    difference = max(largest_difference(found), largest_difference(drawn))
    print(f"{architecture}: largest difference of a token's log-prob {difference:.2g}")
    assert difference < BOUND
    assert not any(rollout.engine.rescored for rollout in drawn if rollout.engine)


def test_a_response_depends_on_its_own_seed_alone() -> None:
    policy, prompts, sampling = by_vllm("qwen3"), text_prompts(6), Sampling(max_new_tokens=12)
    once = policy.sample(prompts, 3, sampling, seed=1)
    assert [r.token_ids for r in policy.sample(prompts, 3, sampling, seed=1)] == [r.token_ids for r in once]
    alone = policy.sample(prompts[2:3], 3, sampling, seed=1)
    assert [r.token_ids for r in alone] == [r.token_ids for r in once[6:9]]
    assert len({r.token_ids for r in once[:3]}) > 1
    assert [r.token_ids for r in policy.sample(prompts, 3, sampling, seed=2)] != [r.token_ids for r in once]


def test_temperature_and_top_p_mean_the_same() -> None:
    policy, (prompt,) = by_vllm("llama"), text_prompts(1)
    sampling = Sampling(max_new_tokens=1, temperature=2.0, top_p=0.8)
    drawn = Counter(r.token_ids[0] for r in policy.sample([prompt], 600, sampling, seed=0))
    ids = torch.tensor([policy.encoder.encode_prompt(prompt)])
    with torch.inference_mode():
        logits = network("llama")(ids).logits[0, -1]
    kept = nucleus((logits / 2.0).softmax(-1)[None], 0.8)[0]
    expected = kept / kept.sum()
    assert len(drawn) > 3
    assert all(expected[token] > 0 for token in drawn)
    distance = sum(abs(drawn[token] / 600 - float(p)) for token, p in enumerate(expected)) / 2
    assert distance < 0.1, "about 0.04 is expected of 600 draws"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_new_weights_are_used_after_every_update(architecture: str) -> None:
    policy, plain, prompts = by_vllm(architecture), built_in(architecture), text_prompts(12)
    before = policy.sample(prompts, 1, GREEDY, seed=0)
    rows = training_rows(random_rows(4, 2))
    for _ in range(2):
        for each in (policy, plain):
            each.update([rows], likelihood)
        after = policy.sample(prompts, 1, GREEDY, seed=0)
        wanted = plain.sample(prompts, 1, GREEDY, seed=0)
        assert [r.token_ids for r in after] == [r.token_ids for r in wanted]
        assert [r.token_ids for r in after] != [r.token_ids for r in before]
        assert largest_difference(after) < BOUND
        before = after


def test_old_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy("eve", network("llama"), tiny_tokenizer(), engine=SMALL_CACHE)
    assert policy._engine is not None
    llm, prompts = policy._engine._llm, text_prompts(2)
    policy.sample(prompts, 1, GREEDY, seed=0)
    (model,) = llm.apply_model(lambda model: model)
    monkeypatch.setattr(model, "load_weights", lambda weights: None)
    policy.update([training_rows(random_rows(4, 2))], likelihood)
    with pytest.raises(EngineFailed, match=r"agent 'eve'.*still does not hold"):
        policy.sample(prompts, 1, GREEDY, seed=0)


def test_two_agents_train_together_one_of_them_with_vllm(tmp_path: Path) -> None:
    agents = {name: make_agent(tmp_path / name, seed, width=64) for seed, name in enumerate(("ada", "bob"))}
    settings = recipe(agents, steps=2)
    settings["agents"][0]["engine"] = {"name": "vllm", "cache_gigabytes": 0.05}
    run(settings, tmp_path / "run")
    lines = [line for line in metrics(tmp_path / "run") if "agent/ada/engine/logp" in line]
    assert len(lines) == 2
    for line in lines:
        assert line["agent/ada/grad_norm"] > 0
        assert line["agent/ada/engine/rescored"] == 0
        assert line["agent/ada/engine/logp_difference_max"] < BOUND
        assert line["agent/ada/engine/logp"] == pytest.approx(
            line["agent/ada/engine/trainer_logp"], abs=BOUND
        )
        assert not [key for key in line if key.startswith("agent/bob/engine")]


@pytest.mark.skipif(
    not Path(SMOLLM2, "config.json").is_file(),
    reason="HACRL_SMOLLM2 does not name a directory with SmolLM2-135M-Instruct (see docs/agents.md)",
)
def test_smollm2_gives_the_same_greedy_answers() -> None:
    questions = ("What is 2 + 3? Answer with one number.", "What is the capital of France?", "Count to five.")
    prompts = [
        Prompt(id=str(place), text=({"role": "user", "content": text},))
        for place, text in enumerate(questions)
    ]
    sampling = Sampling(max_new_tokens=32, greedy=True)
    engine = VllmSettings(cache_gigabytes=0.5, max_rows=8)
    found = Policy.load("smol", SMOLLM2, engine=engine).sample(prompts, 1, sampling, seed=0)
    wanted = Policy.load("smol", SMOLLM2).sample(prompts, 1, sampling, seed=0)
    assert [r.text for r in found] == [r.text for r in wanted]
    assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
    difference = largest_difference(found)
    print(f"SmolLM2-135M: largest difference of a token's log-prob {difference:.2g}")
    assert difference < BOUND
