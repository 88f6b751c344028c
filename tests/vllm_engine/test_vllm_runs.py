"""The real vLLM where every test has an engine of its own."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import helpers_lost
from hacrl.agents.errors import EngineFailed
from hacrl.agents.policy import Policy
from hacrl.recipe.agent_settings import LoraSettings, VllmSettings
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Prompt
from helpers_agents import likelihood, random_rows, text_prompts, training_rows
from helpers_models import SMOLLM2, needs
from helpers_real_vllm import BOUND, GREEDY, HELPERS, SMALL_CACHE, TRAIN, agent, largest_difference
from helpers_train import final_weights, make_agent, metrics, recipe, responses, run

pytest.importorskip("vllm", reason="vLLM needs an environment of its own: make test-vllm")


def test_old_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, prompts = agent("llama", SMALL_CACHE), text_prompts(2)
    policy.sample(prompts, 1, GREEDY, seed=0)
    engine: Any = policy._engine
    (model,) = engine._llm.apply_model(lambda model: model)
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


def test_stop_strings_end_the_same_responses_in_the_same_place() -> None:
    """One token of the first response, and two that follow each other in the second."""
    plain, prompts = agent("llama"), text_prompts(12)
    texts = [r.text for r in plain.sample(prompts, 1, GREEDY, seed=0)]
    stop = (texts[0][5], texts[1][3:5])
    policy = agent("llama", SMALL_CACHE, stop=stop)
    for include in (False, True):
        sampling = GREEDY.model_copy(update={"stop": stop, "include_stop": include})
        found = policy.sample(prompts, 1, sampling, seed=0)
        wanted = plain.sample(prompts, 1, sampling, seed=0)
        assert {r.stop for r in wanted} >= set(stop)
        for name in ("token_ids", "text", "ending", "stop", "finish_reason"):
            assert [getattr(r, name) for r in found] == [getattr(r, name) for r in wanted], name
        assert largest_difference(found) < BOUND


@pytest.mark.parametrize("merged", [False, True])
def test_adapters_are_loaded_as_such_or_merged(merged: bool) -> None:
    prompts, rows = text_prompts(12), training_rows(random_rows(4, 2))
    plain = agent("qwen3", lora=LoraSettings(rank=4))
    engine = SMALL_CACHE.model_copy(update={"merge_adapters": merged})
    policy = agent("qwen3", engine, lora=LoraSettings(rank=4))
    before = policy.sample(prompts, 1, GREEDY, seed=0)
    for _ in range(2):
        for each in (policy, plain):
            each.update([rows], likelihood)
        after = policy.sample(prompts, 1, GREEDY, seed=0)
        wanted = plain.sample(prompts, 1, GREEDY, seed=0)
        assert [r.token_ids for r in after] == [r.token_ids for r in wanted]
        assert [r.token_ids for r in after] != [r.token_ids for r in before]
        before = after
    kind = "merged" if merged else "loaded"
    print(f"LoRA, {kind}: largest difference of a token's log-prob {largest_difference(after):.2g}")
    assert largest_difference(after) < BOUND


def test_an_adapter_that_is_not_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, prompts = agent("llama", SMALL_CACHE, lora=LoraSettings(rank=4)), text_prompts(2)
    policy.sample(prompts, 1, GREEDY, seed=0)
    engine: Any = policy._engine
    monkeypatch.setattr(engine._llm.llm_engine, "add_lora", lambda request: True)
    policy.update([training_rows(random_rows(4, 2))], likelihood)
    with pytest.raises(EngineFailed, match=r"agent 'ada'.*still does not hold"):
        policy.sample(prompts, 1, GREEDY, seed=0)


def two_agents(folder: Path, with_vllm: list[str], **changes: Any) -> dict[str, Any]:
    agents = {name: make_agent(folder / name, seed, width=64) for seed, name in enumerate(("ada", "bob"))}
    settings = recipe(agents, steps=2, **changes)
    for each in settings["agents"]:
        if each["name"] in with_vllm:
            each["engine"] = {"name": "vllm", "cache_gigabytes": 0.05}
    return settings


def check_engines(out: Path, with_vllm: list[str]) -> None:
    lines = [line for line in metrics(out) if "agent/ada/engine/logp" in line]
    assert len(lines) == 2
    for line in lines:
        assert {key.split("/")[1] for key in line if "/engine/" in key} == set(with_vllm)
        for name in with_vllm:
            assert line[f"agent/{name}/grad_norm"] > 0.01
            assert line[f"agent/{name}/engine/rescored"] == 0
            assert line[f"agent/{name}/engine/logp_difference_max"] < BOUND


def test_two_agents_train_together_one_of_them_with_vllm(tmp_path: Path) -> None:
    run(two_agents(tmp_path, ["ada"]), tmp_path / "run")
    check_engines(tmp_path / "run", ["ada"])


def test_adapters_of_two_agents_in_one_engine(tmp_path: Path) -> None:
    settings = two_agents(tmp_path, ["ada", "bob"])
    for each, rank in zip(settings["agents"], (4, 9), strict=True):
        each.update(model=str(tmp_path / "ada"), lora={"rank": rank})
    run(settings, tmp_path / "run")
    check_engines(tmp_path / "run", ["ada", "bob"])


def test_on_ray_every_agent_may_have_vllm(tmp_path: Path) -> None:
    settings = two_agents(tmp_path, ["ada", "bob"], runtime="ray")
    (tmp_path / "recipe.json").write_text(json.dumps(settings))
    # In another process: here vLLM has imported Ray, before hacrl could set it up.
    subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, env=os.environ | HELPERS, check=True)
    check_engines(tmp_path / "run", ["ada", "bob"])


def test_an_agent_of_two_ranks_has_two_engines(tmp_path: Path) -> None:
    settings = two_agents(tmp_path, ["ada"], runtime="ray", evaluation={"prompts": 3})
    settings["agents"][0]["resources"] = {"ranks": 2}
    (tmp_path / "recipe.json").write_text(json.dumps(settings))
    subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, env=os.environ | HELPERS, check=True)
    check_engines(tmp_path / "run", ["ada"])


def test_killed_ranks_and_their_engines_leave_no_trace(tmp_path: Path) -> None:
    kills = int(os.environ.get("HACRL_TEST_KILLS", "3"))
    settings = two_agents(tmp_path, ["ada", "bob"], runtime="ray", evaluation={"prompts": 3})
    settings["agents"][0]["resources"] = {"ranks": 2}
    settings["steps"] = kills  # the same call may fail three times, not more
    (tmp_path / "recipe.json").write_text(json.dumps(settings))
    script = [sys.executable, helpers_lost.__file__, tmp_path, str(kills)]
    subprocess.run(script, cwd=tmp_path, env=os.environ | HELPERS, check=True)
    lost = Counter(json.loads((tmp_path / "lost.json").read_text()))
    assert lost.total() == kills
    print(f"killed and started again: {dict(lost)}")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert responses(killed) == responses(whole)
    for name in ("ada", "bob"):
        wanted = final_weights(whole, name)
        for key, weight in final_weights(killed, name).items():
            torch.testing.assert_close(weight, wanted[key], rtol=0, atol=1e-5)


@needs(SMOLLM2)
def test_smollm2_gives_the_same_greedy_responses() -> None:
    questions = ("What is 2 + 3? Answer with one number.", "What is the capital of France?", "Count to five.")
    prompts = [
        Prompt(id=str(place), text=({"role": "user", "content": text},))
        for place, text in enumerate(questions)
    ]
    sampling = SamplingSettings(max_new_tokens=32).as_greedy()
    engine = VllmSettings(cache_gigabytes=0.5)
    found = Policy.load("smol", SMOLLM2, engine=engine, sampling=sampling).sample(
        prompts, 1, sampling, seed=0
    )
    wanted = Policy.load("smol", SMOLLM2).sample(prompts, 1, sampling, seed=0)
    assert [r.text for r in found] == [r.text for r in wanted]
    assert [r.token_ids for r in found] == [r.token_ids for r in wanted]
    difference = largest_difference(found)
    print(f"SmolLM2-135M: largest difference of a token's log-prob {difference:.2g}")
    assert difference < BOUND
