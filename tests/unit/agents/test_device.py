"""An agent on a device that is not the CPU: all that it does, and how often the CPU waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hacrl.agents import sampler, updater
from hacrl.agents.backends import fused
from hacrl.agents.policy import Policy
from hacrl.algorithm.critic import CriticParams
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings, UpdatesSettings
from hacrl.types import MiniBatch
from helpers_agents import likelihood, random_rows, text_prompts, tiny_model, tiny_tokenizer, training_rows
from helpers_device import DEVICE, MixedDevices, PretendDevice, pretend_device

CPU = torch.device("cpu")
ROWS = random_rows(2, 2)
BATCHES: list[MiniBatch] = [training_rows(ROWS), training_rows(random_rows(1, 3, seed=1), own=False)]
SETTINGS: dict[str, dict[str, Any]] = {
    "fused": {"architecture": "qwen3"},
    "prefix cache": {"architecture": "gpt2"},
    "lora": {"architecture": "qwen3", "lora": LoraSettings(rank=2)},
    "critic, sliding window, micro-batches": {
        "architecture": "gemma3",
        "critic": CriticParams(),
        "updates": UpdatesSettings(tokens_per_micro_batch=30),
    },
    "bf16": {"architecture": "qwen3", "dtype": torch.bfloat16},
}


@pytest.fixture
def device() -> Iterator[PretendDevice]:
    with pretend_device() as opened:
        yield opened


def agent(
    place: torch.device, architecture: str = "qwen3", dtype: torch.dtype = torch.float32, **options: Any
) -> Policy:
    model = tiny_model(architecture).to(dtype).to(place)
    return Policy("ada", model, tiny_tokenizer(), optimiser=OptimiserSettings(learning_rate=1e-4), **options)


def life(place: torch.device, folder: Path, architecture: str, **options: Any) -> dict[str, Any]:
    """All that an agent does, in numbers and texts."""
    model = tiny_model(architecture)
    model.save_pretrained(folder / "base")
    tiny_tokenizer().save_pretrained(folder / "base")
    options = {"device": place, "dtype": torch.float32, **options}
    policy = Policy.load("ada", folder / "base", optimiser=OptimiserSettings(learning_rate=1e-4), **options)
    sampling = [
        SamplingSettings(max_new_tokens=6),
        SamplingSettings(max_new_tokens=6, top_p=0.9, stop=("a",)),
        SamplingSettings(max_new_tokens=6, temperature=0.8, top_k=9, min_p=0.001),
    ]
    drawn = [r for chosen in sampling for r in policy.sample(text_prompts(2), 2, chosen, seed=0)]
    reports = policy.update(policy.prepare(BATCHES), likelihood)
    policy.write_state(folder / "state")
    policy.read_state(folder / "state")
    reports += policy.update(policy.prepare(BATCHES), likelihood)
    policy.save(folder / "model")
    gradient = policy.gradient(policy.prepare(BATCHES)[0], likelihood, 0)
    assert gradient.device == CPU
    again = Policy.load("ada", folder / "model", device=place, dtype=options["dtype"])
    assert (again.device.type, again.fingerprint()) == (place.type, policy.fingerprint())
    return {
        "backends": policy.backends,
        "texts": [r.text for r in drawn],
        "logps": [logp for r in drawn for logp in r.token_logps],
        "scores": [logp for scores in policy.score(ROWS) for logp in scores],
        "features": [number for numbers in policy.features(text_prompts(2)) for number in numbers],
        "updates": [(r.loss, r.grad_norm, r.kl, r.value_loss) for r in reports],
        "gradient": gradient.tolist(),
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_an_agent_does_the_same_on_another_device(name: str, tmp_path: Path) -> None:
    """Also the same backends: a mistake in one of them would only make an agent take a slower one."""
    here = life(CPU, tmp_path / "here", **SETTINGS[name])
    with pretend_device():
        there = life(DEVICE, tmp_path / "there", **SETTINGS[name])
    assert there["backends"] == here["backends"]
    if name == "bf16":  # rounded elsewhere, other tokens are drawn
        return
    tolerance = 2e-5
    assert there["texts"] == here["texts"]
    for key in ("logps", "scores", "features", "updates", "gradient"):
        torch.testing.assert_close(
            torch.tensor(there[key]), torch.tensor(here[key]), atol=tolerance, rtol=tolerance
        )


def test_an_agent_moves_there_and_back(device: PretendDevice) -> None:
    """As with `share_devices`; all that is on the device while it works is on the CPU while it waits."""
    policy = agent(DEVICE, critic=CriticParams())
    policy.update(policy.prepare(BATCHES), likelihood)
    before, scores = policy.fingerprint(), policy.score(ROWS)
    policy.move(CPU)
    assert {tensor.device.type for o in policy._optimisers.values() for tensor in o.tensors().values()} == {
        "cpu"
    }
    assert policy.fingerprint() == before
    policy.move(DEVICE)
    assert policy.score(ROWS) == scores
    policy.update(policy.prepare(BATCHES), likelihood)


# --- how often the CPU waits ------------------------------------------------------------------------------


def waits(device: PretendDevice, work: Callable[[], Any]) -> int:
    device.waits.clear()
    work()
    return device.waits.total()


def waits_per_token(device: PretendDevice, policy: Policy, **options: Any) -> float:
    """Of responses that never end by themselves."""
    policy.encoder.eos_ids = (10**6,)  # type: ignore[misc]

    def sample(tokens: int) -> int:
        settings = SamplingSettings(max_new_tokens=tokens, **options)
        return waits(device, lambda: policy.sample(text_prompts(3), 2, settings, seed=0))

    return (sample(20) - sample(4)) / 16


@pytest.mark.parametrize(("architecture", "times"), [("qwen3", 1), ("gemma3", 1), ("gpt2", 3)])
def test_decoding_waits_once_per_token(device: PretendDevice, architecture: str, times: int) -> None:
    """To see whether all responses are finished; modules of transformers also look at the mask, twice."""
    assert waits_per_token(device, agent(DEVICE, architecture)) == times


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({"temperature": 2.0}, 1),
        ({"temperature": 0.7, "top_p": 0.9}, 1),
        ({"top_k": 5}, 1),
        ({"min_p": 0.01}, 1),
        ({"stop": ("never",)}, 2),
        ({"top_k": 5, "min_p": 0.01, "stop": ("never", "at all")}, 2),
    ],
    ids=str,
)
def test_stop_strings_cost_one_wait_more_and_restrictions_none(
    device: PretendDevice, options: dict[str, Any], times: int
) -> None:
    """Text is compared on the CPU, which gets rows, tokens and what is finished in one piece."""
    assert waits_per_token(device, agent(DEVICE), **options) == times


def test_features_wait_once_per_micro_batch(device: PretendDevice) -> None:
    counts = []
    for budget in (10**6, 1):
        policy = agent(DEVICE, updates=UpdatesSettings(tokens_per_micro_batch=budget))
        counts.append(waits(device, lambda policy=policy: policy.features(text_prompts(3))))  # type: ignore[misc]
    assert counts == [1, 3]


@pytest.mark.parametrize(("architecture", "times"), [("qwen3", 1), ("gemma3", 1), ("gpt2", 8)])
def test_updates_hardly_wait(device: PretendDevice, architecture: str, times: int) -> None:
    """Per micro-batch, once for a check of the KL term's mask; those of transformers look at their masks."""
    rows = training_rows(random_rows(6, 1, seed=2))
    counts = []
    for budget in (10**6, 1):
        policy = agent(DEVICE, architecture, updates=UpdatesSettings(tokens_per_micro_batch=budget))
        counts.append(waits(device, lambda policy=policy: policy.update([rows], likelihood)))  # type: ignore[misc]
    assert (counts[1] - counts[0]) / 5 <= times
    assert counts[0] <= 15


def test_a_fingerprint_waits_once(device: PretendDevice) -> None:
    assert waits(device, agent(DEVICE).fingerprint) == 1


# --- the three mistakes it is made for --------------------------------------------------------------------


def test_a_forgotten_move_is_found(device: PretendDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, correct = agent(DEVICE), updater.response_mask
    monkeypatch.setattr(updater, "response_mask", lambda rows, place: correct(rows, CPU))
    with pytest.raises(MixedDevices, match=r"tensors of lazy:0 and of the CPU"):
        policy.update(BATCHES, likelihood)


def test_a_forgotten_move_in_a_backend_is_seen_in_the_choice(
    device: PretendDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`choose_backends` takes the next one when a backend fails, so nothing is raised."""
    correct = fused.pack
    monkeypatch.setattr(fused, "pack", lambda rows, place, *rest: correct(rows, CPU, *rest))
    assert agent(CPU).backends == {"decode": "FusedDecoder", "train": "FusedScorer"}
    assert agent(DEVICE).backends == {"decode": "CachedDecoder", "train": "SharedPrefixScorer"}


def test_random_numbers_of_the_cpu_are_found(device: PretendDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, correct = agent(DEVICE), sampler.pick

    def mistaken(logits: Tensor, uniforms: Tensor, sampling: SamplingSettings) -> tuple[Tensor, Tensor]:
        drawn = torch.rand(uniforms.shape, generator=torch.Generator().manual_seed(0), device=logits.device)
        return correct(logits, drawn, sampling)

    monkeypatch.setattr(sampler, "pick", mistaken)
    with pytest.raises(MixedDevices, match="generator of the CPU"):
        policy.sample(text_prompts(1), 1, SamplingSettings(max_new_tokens=2), seed=0)


def test_a_number_read_in_the_decoding_loop_is_counted(
    device: PretendDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, correct = agent(DEVICE), sampler.pick

    def mistaken(logits: Tensor, uniforms: Tensor, sampling: SamplingSettings) -> tuple[Tensor, Tensor]:
        tokens, logps = correct(logits, uniforms, sampling)
        assert logps.max().item() <= 0
        return tokens, logps

    monkeypatch.setattr(sampler, "pick", mistaken)
    assert waits_per_token(device, policy) == 2.0


def test_what_is_on_the_cpu_on_purpose_is_let_through(device: PretendDevice) -> None:
    """A GPU takes numbers without a dimension, and indices, from the CPU."""
    there = torch.arange(6.0).to(DEVICE)
    assert (there * torch.tensor(2.0))[torch.tensor([1, 2])].tolist() == [2.0, 4.0]
    assert there[there > 3].tolist() == [4.0, 5.0]
    with pytest.raises(MixedDevices):
        torch.cat([there, torch.zeros(1)])
    with pytest.raises(RuntimeError, match="numpy"):
        there.numpy()
