"""Adapters over frozen weights in 4 bits, on the CPU."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hacrl.agents.errors import AgentError
from hacrl.agents.policy import Policy
from hacrl.agents.shared_base import SharedBases
from hacrl.algorithm.critic import CriticParams
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from helpers_agents import likelihood, random_rows, text_prompts, training_rows
from helpers_train import make_agent, outcome, recipe, run

QUANTISED = LoraSettings(rank=2, base_bits=4)
OPTIMISER = OptimiserSettings(learning_rate=1e-2, kl=0.1)
ROWS = random_rows(4, 2)
BATCHES = (training_rows(ROWS), training_rows(random_rows(2, 2), seed=1))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_agent(tmp_path_factory.mktemp("base"), 1)


def load(model: Path, lora: LoraSettings | None = QUANTISED, **options: Any) -> Policy:
    return Policy.load("ada", model, lora=lora, **({"optimiser": OPTIMISER} | options))


def apart(one: Policy, two: Policy) -> float:
    """Mean distance of the log-probs of all tokens."""
    pairs = zip(one.score(ROWS), two.score(ROWS), strict=True)
    distances = [abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)]
    return sum(distances) / len(distances)


def weights(policy: Policy) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in policy._model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probs_are_near_those_of_the_whole_weights(
    dtype: torch.dtype, model: Path, tmp_path: Path
) -> None:
    quantised, whole = (load(model, lora, dtype=dtype) for lora in (QUANTISED, LoraSettings(rank=2)))
    other = load(make_agent(tmp_path, 2), None, dtype=dtype)
    assert 0 < apart(quantised, whole) < 0.2 * apart(other, whole)
    assert quantised.parameters == whole.parameters
    assert quantised.backends == {"decode": "CachedDecoder", "train": "SharedPrefixScorer"}
    linear = [w for name, w in quantised._model.named_parameters() if "base_layer" in name]
    assert linear
    assert all(weight.dtype == torch.uint8 for weight in linear)
    assert sum(w.nbytes for w in linear) * 8 == 4 * sum(
        math.prod(layer.weight.quant_state.shape)
        for layer in quantised._model.modules()
        if hasattr(layer, "quant_state")
    )


def test_only_the_adapters_learn_and_sampling_sees_it(model: Path, tmp_path: Path) -> None:
    policy = load(model, critic=CriticParams())
    before, first = weights(policy), policy.score(ROWS)
    reports = policy.update(policy.prepare(BATCHES), likelihood)
    assert reports[-1].kl > 0
    changed = {name for name, weight in weights(policy).items() if not torch.equal(weight, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert policy.score(ROWS) != first
    prompts = {prompt.id: prompt for prompt in text_prompts(3)}
    for rollout in policy.sample(list(prompts.values()), 2, SamplingSettings(max_new_tokens=6), 0):
        prompt = policy.encoder.encode_prompt(prompts[rollout.prompt_id])
        (scored,) = policy.score([(prompt, rollout.token_ids)])
        assert scored == pytest.approx(rollout.token_logps, abs=1e-4)

    policy.write_state(tmp_path / "state")
    resumed = load(model, critic=CriticParams())
    resumed.read_state(tmp_path / "state")
    assert resumed.fingerprint() == policy.fingerprint()
    assert resumed.score(ROWS) == policy.score(ROWS)

    policy.save(tmp_path / "saved")
    assert {"adapter_model.safetensors", "tokenizer.json"} <= {p.name for p in (tmp_path / "saved").iterdir()}
    again = Policy.load("ada", tmp_path / "saved")  # over the whole weights of its base
    trained, fresh = apart(again, policy), apart(load(model, LoraSettings(rank=2)), policy)
    assert trained < 0.3 * fresh


def test_the_gradient_is_that_of_the_weights_it_stands_for(model: Path) -> None:
    """A model with the rounded weights in full has the same log-probs and gradients."""
    from bitsandbytes.functional import dequantize_4bit

    quantised, rounded = load(model), load(model, LoraSettings(rank=2))
    with torch.no_grad():
        for name, layer in quantised._model.named_modules():
            if name.endswith("base_layer"):
                full = dequantize_4bit(layer.weight.data, layer.weight.quant_state)
                rounded._model.get_submodule(name).weight.copy_(full)
    assert apart(quantised, rounded) < 1e-5
    ours, theirs = (policy.gradient(BATCHES[0], likelihood, 0) for policy in (quantised, rounded))
    assert float(ours.norm()) > 0
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


def test_agents_share_the_quantised_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = make_agent(tmp_path / "base", 1)
    settings = recipe({"ada": base, "eve": base}, steps=2, evaluation={"prompts": 2, "before": False})
    for agent in settings["agents"]:
        agent["lora"] = {"rank": 2, "base_bits": 4}
    run(settings, tmp_path / "shared")
    bases = SharedBases()
    one, two, whole = (load(base, lora, bases=bases) for lora in (QUANTISED, QUANTISED, LoraSettings(rank=2)))
    ours, theirs, others = (
        {w.data_ptr() for w in policy._model.parameters() if not w.requires_grad}
        for policy in (one, two, whole)
    )
    assert ours == theirs
    assert not ours & others
    monkeypatch.setattr(SharedBases, "get", lambda self, key, load: load())
    run(settings, tmp_path / "separate")
    assert outcome(tmp_path / "shared") == outcome(tmp_path / "separate")


def test_without_bitsandbytes_the_extra_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AgentError, match=r"pip install 'hacrl\[quantised\]'"):
        load(model)
