"""LoRA adapters in vLLM, with a stand-in for it; `tests/vllm_engine` runs the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hacrl.agents.backends.vllm_adapters import AdapterRoom, adapted_modules, adapter_obstacle, write_adapter
from hacrl.agents.errors import AgentError, EngineFailed
from hacrl.agents.loading import with_adapters
from hacrl.agents.policy import Policy
from hacrl.agents.shared_base import SharedBases
from hacrl.recipe.agent_settings import LoraSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from helpers_agents import likelihood, random_rows, text_prompts, tiny_model, tiny_tokenizer, training_rows
from helpers_vllm import install

GREEDY = SamplingSettings(max_new_tokens=6).as_greedy()
ROWS = {"ada": training_rows(random_rows(3, 2)), "bob": training_rows(random_rows(3, 2, seed=5))}


def make(name: str, bases: SharedBases, engine: VllmSettings | None, rank: int = 3) -> Policy:
    base: Any = bases.get("qwen3", lambda: tiny_model("qwen3"))
    return Policy(
        name,
        base,
        tiny_tokenizer(),
        optimiser=OptimiserSettings(learning_rate=1e-2, kl=0.0),
        lora=LoraSettings(rank=rank, alpha=7.0),
        engine=engine,
        seed=len(name) + rank,
        bases=bases,
    )


def test_two_agents_have_their_adapters_in_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    ranks = {"ada": 3, "bob": 9}
    bases, plain = SharedBases(list(ranks.values())), SharedBases()
    agents = [make(name, bases, VllmSettings(), rank) for name, rank in ranks.items()]
    wanted = [make(name, plain, None, rank) for name, rank in ranks.items()]
    prompts, seen = text_prompts(4), set()
    for _ in range(2):
        for agent, other in zip(agents, wanted, strict=True):
            for each in (agent, other):
                each.update([ROWS[agent.name]], likelihood)
            found = agent.sample(prompts, 1, GREEDY, seed=0)
            expected = other.sample(prompts, 1, GREEDY, seed=0)
            assert [r.token_ids for r in found] == [r.token_ids for r in expected]
            assert [r.engine.difference for r in found if r.engine] == pytest.approx([0.0] * 4, abs=1e-4)
            seen.add(tuple(r.token_ids for r in found))
    assert len(seen) == 4
    (engine,) = llm.made
    assert {key: engine.settings[key] for key in ("max_loras", "max_lora_rank", "load_format")} == {
        "max_loras": 2,
        "max_lora_rank": 16,
        "load_format": "safetensors",
    }
    once = [[f"adapter {name}", "reset", "generate"] for name in ("ada", "bob")]
    assert engine.calls == ["load", *once[0], *once[1], *once[0], *once[1]]
    agents[0].sample(prompts, 1, GREEDY, seed=0)
    assert engine.calls[13:] == ["generate"], "nothing has changed"


def test_an_adapter_that_is_not_taken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    agent = make("ada", SharedBases(), VllmSettings())
    agent.sample(text_prompts(1), 1, GREEDY, seed=0)
    llm.forgetful = True
    agent.update([ROWS["ada"]], likelihood)
    with pytest.raises(
        EngineFailed, match=r"agent 'ada' cannot be used.*weight 'model\.layers\.0\..*' of agent"
    ):
        agent.sample(text_prompts(1), 1, GREEDY, seed=0)
    assert llm.made[0].calls.count("generate") == 1


def test_frozen_weights_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    agent = make("ada", SharedBases(), VllmSettings())
    with torch.no_grad():
        next(llm.made[0].model.parameters())[3, 3] += 1e-6
    with pytest.raises(EngineFailed, match="embed_tokens"):
        agent.sample(text_prompts(1), 1, GREEDY, seed=0)


def test_adapters_are_merged_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    agent = make("ada", SharedBases(), VllmSettings(merge_adapters=True))
    plain = make("ada", SharedBases(), None)
    for each in (agent, plain):
        each.update([ROWS["ada"]], likelihood)
    found = agent.sample(text_prompts(3), 1, GREEDY, seed=0)
    assert [r.token_ids for r in found] == [
        r.token_ids for r in plain.sample(text_prompts(3), 1, GREEDY, seed=0)
    ]
    assert llm.made[0].calls == ["load", "reset", "generate"]


def test_what_is_written_is_the_adapter(tmp_path: Path) -> None:
    adapted = with_adapters(tiny_model("llama"), LoraSettings(rank=2, alpha=3.0), seed=0)
    write_adapter(adapted_modules(adapted.get_base_model()), tmp_path)
    adapted.save_pretrained(tmp_path / "peft")
    found, wanted = (load_file(each / "adapter_model.safetensors") for each in (tmp_path, tmp_path / "peft"))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_adapters_that_vllm_cannot_load_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert adapter_obstacle(with_adapters(tiny_model("qwen3"), LoraSettings(), 0).get_base_model()) is None
    with pytest.raises(
        AgentError, match=r"agent 'ada'.*c_attn is not a linear layer.*engine.merge_adapters: true"
    ):
        Policy("ada", tiny_model("gpt2"), tiny_tokenizer(), lora=LoraSettings(rank=2), engine=VllmSettings())


@pytest.mark.parametrize(("rank", "largest"), [(1, 1), (4, 8), (16, 16), (300, 320), (600, 600)])
def test_vllm_has_certain_ranks(rank: int, largest: int) -> None:
    assert AdapterRoom(2, rank).settings()["max_lora_rank"] == largest
