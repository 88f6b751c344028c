"""The real vLLM beside the built-in sampler. `make test-vllm` runs this in an environment of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from hacrl.agents.policy import Policy
from hacrl.agents.sampler import nucleus, restricted
from hacrl.recipe.settings import SamplingSettings
from helpers_agents import likelihood, random_rows, text_prompts, training_rows
from helpers_real_vllm import BOUND, GREEDY, SMALL_CACHE, agent, largest_difference, network

pytest.importorskip("vllm", reason="vLLM needs an environment of its own: make test-vllm")


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def started(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Path]:
    """An agent with vLLM, which takes seconds to start, and its first weights; one at a time."""
    policy, folder = agent(architecture, SMALL_CACHE), tmp_path_factory.mktemp("state")
    policy.write_state(folder)
    return policy, folder


@pytest.fixture
def policy(started: tuple[Policy, Path]) -> Policy:
    """With its first weights again."""
    policy, folder = started
    policy.read_state(folder)
    return policy


def test_the_same_greedy_responses_with_the_same_log_probs(policy: Policy, architecture: str) -> None:
    prompts = text_prompts(12)
    found = policy.sample(prompts, 1, GREEDY, seed=0)
    wanted = agent(architecture).sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
    assert [r.text for r in found] == [r.text for r in wanted]
    assert [r.finish_reason for r in found] == [r.finish_reason for r in wanted]
    drawn = policy.sample(prompts, 4, SamplingSettings(max_new_tokens=40), seed=0)
    difference = max(largest_difference(found), largest_difference(drawn))
    print(f"{architecture}: largest difference of a token's log-prob {difference:.2g}")
    assert difference < BOUND
    assert not any(rollout.engine.rescored for rollout in drawn if rollout.engine)


def test_a_response_depends_on_its_own_seed_alone(policy: Policy) -> None:
    prompts, sampling = text_prompts(6), SamplingSettings(max_new_tokens=12)
    once = policy.sample(prompts, 3, sampling, seed=1)
    assert [r.token_ids for r in policy.sample(prompts, 3, sampling, seed=1)] == [r.token_ids for r in once]
    alone = policy.sample(prompts[2:3], 3, sampling, seed=1)
    assert [r.token_ids for r in alone] == [r.token_ids for r in once[6:9]]
    assert len({r.token_ids for r in once[:3]}) > 1
    assert [r.token_ids for r in policy.sample(prompts, 3, sampling, seed=2)] != [r.token_ids for r in once]


def test_temperature_and_top_p_mean_the_same(policy: Policy, architecture: str) -> None:
    (prompt,) = text_prompts(1)
    sampling = SamplingSettings(max_new_tokens=1, temperature=2.0, top_p=0.8)
    drawn = Counter(r.token_ids[0] for r in policy.sample([prompt], 600, sampling, seed=0))
    ids = torch.tensor([policy.encoder.encode_prompt(prompt)])
    with torch.inference_mode():
        logits = network(architecture)(ids).logits[0, -1]
    kept = nucleus((logits / 2.0).softmax(-1)[None], 0.8)[0]
    expected = kept / kept.sum()
    assert len(drawn) > 3
    assert all(expected[token] > 0 for token in drawn)
    distance = sum(abs(drawn[token] / 600 - float(p)) for token, p in enumerate(expected)) / 2
    assert distance < 0.1, "about 0.04 is expected of 600 draws"


@pytest.mark.parametrize("limit", [{"top_k": 5}, {"min_p": 0.6}], ids=["top_k", "min_p"])
def test_top_k_and_min_p_mean_the_same(limit: dict[str, Any], policy: Policy, architecture: str) -> None:
    (prompt,) = text_prompts(1)
    sampling = SamplingSettings(max_new_tokens=1, temperature=2.0, **limit)
    drawn = Counter(r.token_ids[0] for r in policy.sample([prompt], 600, sampling, seed=0))
    ids = torch.tensor([policy.encoder.encode_prompt(prompt)])
    with torch.inference_mode():
        logits = network(architecture)(ids).logits[0, -1]
    kept = restricted((logits / 2.0).softmax(-1)[None], sampling)[0]
    expected = kept / kept.sum()
    assert 1 < int((kept > 0).sum()) < len(kept)
    assert all(expected[token] > 0 for token in drawn)
    distance = sum(abs(drawn[token] / 600 - float(p)) for token, p in enumerate(expected)) / 2
    assert distance < 0.1, "about 0.04 is expected of 600 draws"


def test_new_weights_are_used_after_every_update(policy: Policy, architecture: str) -> None:
    plain, prompts = agent(architecture), text_prompts(12)
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
