"""Agents that share a device. fp64 stands in for CPU memory: offloading loses no bit, working there shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from hacrl.agents.policy import Policy
from hacrl.agents.shared_base import SharedBases
from hacrl.algorithm.critic import CriticParams
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from hacrl.runtime import device_sharing
from hacrl.runtime.device_sharing import DeviceSharing, SharedDeviceAgent
from helpers_agents import gspo, random_rows, text_prompts, tiny_model, tiny_tokenizer, training_rows
from helpers_states import saved_tensors
from helpers_train import make_agent, outcome, recipe, run

BATCHES = (training_rows(random_rows(2, 2)), training_rows(random_rows(2, 1), own=False, seed=1))


class Plan:
    """A blueprint of an agent with everything that has to move: optimiser, frozen copy, critic."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def load(self, bases: SharedBases) -> Policy:
        return self._policy(tiny_model("qwen3", self.seed))

    def _policy(self, model: PreTrainedModel, lora: LoraSettings | None = None) -> Policy:
        optimiser = OptimiserSettings(learning_rate=1e-3, kl=0.1)
        return Policy(
            "ada",
            model,
            tiny_tokenizer(),
            optimiser=optimiser,
            lora=lora,
            critic=CriticParams(),
            seed=self.seed,
        )


class AdapterPlan(Plan):
    """A blueprint of an agent whose frozen weights are those of the other agent, wherever they are now."""

    def load(self, bases: SharedBases) -> Policy:
        base: Any = bases.get("qwen3", lambda: tiny_model("qwen3"))
        return self._policy(base.to(torch.float32), LoraSettings(rank=2))


def lives(agents: list[Any]) -> list[Any]:
    """Two agents that alternate, phase by phase."""
    seen: list[Any] = []
    for done in range(2):
        seen += [
            agent.sample(text_prompts(3), 2, SamplingSettings(max_new_tokens=4), done) for agent in agents
        ]
        seen += [agent.score(random_rows(2, 2)) for agent in agents]
        seen += [repr(agent.update(agent.prepare(BATCHES), gspo)) for agent in agents]
    return seen


@pytest.mark.parametrize("kind", [Plan, AdapterPlan])
def test_offloading_changes_no_bit(kind, monkeypatch, tmp_path):
    plans: list[Any] = [kind(seed) for seed in range(2)]
    plain = [plan.load(SharedBases()) for plan in plans]
    expected = lives(plain)

    monkeypatch.setattr(device_sharing, "OFFLOAD_DEVICE", torch.float64)
    monkeypatch.setattr(Policy, "device", torch.float32)
    sharing, bases = DeviceSharing(), SharedBases()
    agents = [SharedDeviceAgent(plan, sharing, bases) for plan in plans]
    assert lives(agents) == expected
    for agent, policy in zip(agents, plain, strict=True):
        sharing.acquire(agent._loaded)
        assert agent.fingerprint() == policy.fingerprint()
        policy.write_state(tmp_path / "alone")
        agent.write_state(tmp_path / "shared")
        expected, found = saved_tensors(tmp_path / "alone"), saved_tensors(tmp_path / "shared")
        assert found.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[key]) for key, tensor in found.items())


def test_a_run_with_shared_devices_is_the_same_run(tmp_path):
    agents = {"ada": make_agent(tmp_path / "ada", 1), "eve": make_agent(tmp_path / "eve", 3, "gpt2")}
    settings = recipe(agents, steps=2, evaluation={"prompts": 2, "before": False})
    run(settings, tmp_path / "local")
    run(settings | {"runtime": {"share_devices": True}}, tmp_path / "shared")
    assert outcome(tmp_path / "shared") == outcome(tmp_path / "local")
