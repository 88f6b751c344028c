"""Agents that train adapters of one model hold its weights once, and learn as if each had its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hacrl.agents.policy import Policy
from hacrl.agents.shared_base import SharedBases
from hacrl.algorithm.critic import CriticParams
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings
from hacrl.runtime.local_runtime import LocalRuntime
from helpers_agents import gspo, random_rows, tiny_model, tiny_tokenizer, training_rows
from helpers_train import make_agent, outcome, recipe, run

LORA = LoraSettings(rank=2)
OPTIMISER = OptimiserSettings(learning_rate=1e-3, kl=0.1)
BATCHES = (training_rows(random_rows(2, 2)), training_rows(random_rows(2, 1), own=False, seed=1))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    tiny_model("qwen3").save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def parts(policy: Policy) -> list[nn.Module]:
    """Everything of an agent that has weights."""
    critic = policy._critic
    return [policy._whole, *([critic._network] if critic else [])]


def held(policies: Sequence[Policy]) -> dict[int, int]:
    """Address -> bytes of all distinct weights."""
    modules = [module for policy in policies for module in parts(policy)]
    return {weight.data_ptr(): weight.nbytes for module in modules for weight in module.parameters()}


def trained(policy: Policy) -> int:
    weights = [weight for module in parts(policy) for weight in module.parameters()]
    return sum(weight.nbytes for weight in weights if weight.requires_grad)


@pytest.mark.parametrize("critic", [None, CriticParams()], ids=["alone", "with critics"])
def test_agents_hold_one_base_and_adapters_of_their_own(critic: CriticParams | None, model: Path) -> None:
    def load(seed: int, bases: SharedBases) -> Policy:
        options: Any = {"optimiser": OPTIMISER, "lora": LORA, "critic": critic}
        return Policy.load("ada", model, seed=seed, bases=bases, **options)

    bases = SharedBases()
    policies = [load(seed, bases) for seed in range(3)]
    base = sum(weight.nbytes for weight in tiny_model("qwen3").parameters())
    assert sum(held(policies).values()) == base + sum(map(trained, policies))

    for seed, policy in enumerate(policies):
        alone = load(seed, SharedBases())
        assert not held([alone]).keys() & held(policies).keys()
        assert repr(policy.update(policy.prepare(BATCHES), gspo)) == repr(
            alone.update(alone.prepare(BATCHES), gspo)
        )
        assert policy.score(random_rows(2, 2)) == alone.score(random_rows(2, 2))
        assert policy.fingerprint() == alone.fingerprint()


@pytest.mark.parametrize("other", [{"lora": None}, {"dtype": torch.bfloat16}, {"model": "copy"}], ids=str)
def test_other_weights_are_not_shared(other: dict[str, Any], model: Path, tmp_path: Path) -> None:
    if "model" in other:
        tiny_model("qwen3", 1).save_pretrained(tmp_path)
        tiny_tokenizer().save_pretrained(tmp_path)
        other = {"model": tmp_path}
    bases, options = SharedBases(), {"model": model, "lora": LORA, "optimiser": OPTIMISER}
    one, two = (Policy.load("ada", **kind, bases=bases) for kind in (options, options | other))
    assert not held([one]).keys() & held([two]).keys()


def test_an_adapter_that_is_trained_further_has_its_own_base(model: Path, tmp_path: Path) -> None:
    """Its configuration may train weights of the base."""
    bases = SharedBases()
    one = Policy.load("ada", model, lora=LORA, optimiser=OPTIMISER, bases=bases)
    one.save(tmp_path)
    two = Policy.load("eve", tmp_path, optimiser=OPTIMISER, bases=bases)
    assert not held([one]).keys() & held([two]).keys()


def adapters(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob("agents/*/adapter_model.safetensors")}


def test_a_run_on_one_base_is_the_run_on_separate_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = make_agent(tmp_path / "base", 1)
    settings = recipe({"ada": base, "eve": base}, steps=3, evaluation={"prompts": 2, "before": False})
    for agent, rank in zip(settings["agents"], (2, 4), strict=True):
        agent["lora"] = {"rank": rank}
    loaded: list[Any] = []
    load = LocalRuntime.load
    monkeypatch.setattr(LocalRuntime, "load", lambda *args: loaded.append(load(*args)) or loaded[-1])
    run(settings, tmp_path / "shared")
    run(settings | {"runtime": {"share_devices": True}}, tmp_path / "offloaded")
    monkeypatch.setattr(SharedBases, "get", lambda self, key, load: load())
    run(settings, tmp_path / "separate")

    assert outcome(tmp_path / "shared") == outcome(tmp_path / "separate") == outcome(tmp_path / "offloaded")
    assert len(adapters(tmp_path / "shared")) == 2
    assert (
        adapters(tmp_path / "shared") == adapters(tmp_path / "separate") == adapters(tmp_path / "offloaded")
    )
    shared, _, separate = loaded
    assert sum(held(shared).values()) < 0.7 * sum(held(separate).values())
