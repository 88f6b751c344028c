"""The real vLLM where every test has an engine of its own."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from hacrl.agents.errors import EngineFailed
from hacrl.agents.policy import Policy
from hacrl.agents.settings import Sampling, VllmSettings
from hacrl.types import Prompt
from helpers_agents import likelihood, random_rows, text_prompts, training_rows
from helpers_real_vllm import BOUND, GREEDY, SMALL_CACHE, agent, largest_difference
from helpers_train import make_agent, metrics, recipe, run

pytest.importorskip("vllm", reason="vLLM needs an environment of its own: make test-vllm")

SMOLLM2 = os.environ.get("HACRL_SMOLLM2", "")


def test_old_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, prompts = agent("llama", SMALL_CACHE), text_prompts(2)
    assert policy._engine is not None
    policy.sample(prompts, 1, GREEDY, seed=0)
    (model,) = policy._engine._llm.apply_model(lambda model: model)
    monkeypatch.setattr(model, "load_weights", lambda weights: None)
    policy.update([training_rows(random_rows(4, 2))], likelihood)
    with pytest.raises(EngineFailed, match=r"agent 'ada'.*still does not hold"):
        policy.sample(prompts, 1, GREEDY, seed=0)


def test_a_second_engine_ends_the_first_and_works() -> None:
    first, prompts = agent("llama", SMALL_CACHE), text_prompts(2)
    before = first.sample(prompts, 1, GREEDY, seed=0)
    second = agent("llama", SMALL_CACHE)
    with pytest.raises(EngineFailed, match="started another in this process"):
        first.sample(prompts, 1, GREEDY, seed=0)
    del first
    gc.collect()
    after = second.sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in after] == [r.token_ids for r in before]


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
