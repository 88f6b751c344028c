"""One process; several ranks are in test_ranks.py."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hacrl.agents import training_state as states
from hacrl.agents.errors import AgentError
from hacrl.agents.optimiser import Optimiser
from hacrl.agents.policy import Policy
from hacrl.agents.ranks import Ranks
from hacrl.algorithm import CriticParams, PpoObjective
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings
from hacrl.runs.files import StorageError
from helpers_agents import likelihood, random_rows, tiny_model, tiny_policy, tiny_tokenizer, training_rows
from helpers_states import saved_parts, saved_tensors

FAST = OptimiserSettings(learning_rate=1e-2, kl=0.0)
BATCHES = [training_rows(random_rows(2, 2, seed=seed)) for seed in range(2)]


def make(dtype: torch.dtype = torch.float32, **options: Any) -> Policy:
    model = tiny_model("qwen3").to(dtype)
    return Policy("ada", model, tiny_tokenizer(), optimiser=FAST, **options)


KINDS: dict[str, dict[str, Any]] = {
    "tied weights and a critic": {"critic": CriticParams()},
    "adapters": {"lora": LoraSettings(rank=2)},
    "half precision": {"dtype": torch.bfloat16},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_a_state_comes_back_bit_by_bit_also_from_many_files_and_from_one_whole_file(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make(**options)
    policy.update(policy.prepare(BATCHES), PpoObjective() if "critic" in options else likelihood)
    live = states._tensors(policy._optimisers)
    policy.write_state(tmp_path / "one")
    assert [path.name for path in (tmp_path / "one").iterdir()] == [
        "shard-00001-model-00001-of-00001.safetensors"  # above all no .metadata, which would be a pickle
    ]
    monkeypatch.setattr(states, "FILE_BYTES", 2_000)
    policy.write_state(tmp_path / "many")
    (tmp_path / "old").mkdir()
    save_file({key: tensor.clone() for key, tensor in live.items()}, tmp_path / "old/state.safetensors")
    for folder, files in (("one", 1), ("many", 5), ("old", 1)):
        assert len(list((tmp_path / folder).iterdir())) >= files
        found = saved_tensors(tmp_path / folder)
        assert found.keys() == live.keys()
        assert all(found[key].dtype == live[key].dtype for key in live)
        assert all(torch.equal(found[key], live[key]) for key in live)
        again = make(**options)
        again.read_state(tmp_path / folder)
        assert again.fingerprint() == policy.fingerprint()
        restored = states._tensors(again._optimisers)
        assert restored.keys() == live.keys()
        assert all(torch.equal(restored[key], live[key]) for key in live)
    assert int(live["updates"]) == 2


def test_going_back_to_before_the_first_update_forgets_the_moments(tmp_path: Path) -> None:
    policy = tiny_policy("qwen3", FAST)
    start = policy.fingerprint()
    policy.write_state(tmp_path)
    assert {key.partition("/")[0] for key in saved_tensors(tmp_path)} == {"updates", "weight"}
    first = policy.update(BATCHES, likelihood)
    policy.read_state(tmp_path)
    assert policy.fingerprint() == start
    assert policy.update(BATCHES, likelihood) == first


def test_a_weight_that_lies_across_in_memory_comes_back(tmp_path: Path) -> None:
    def optimiser() -> dict[str, Optimiser]:
        return {"": Optimiser({"across": nn.Parameter(torch.arange(12.0).view(3, 4).T)}, FAST)}

    written, read = optimiser(), optimiser()
    (weight,) = written[""].parameters.values()
    weight.grad = torch.ones_like(weight)
    written[""].step(written[""].gradient_norm())
    states.write_state(tmp_path, written, Ranks())
    states.read_state(tmp_path, read, Ranks())
    for key, tensor in written[""].tensors().items():
        assert torch.equal(read[""].tensors()[key], tensor)


def test_a_state_of_another_model_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    tiny_policy("gpt2").write_state(tmp_path / "gpt2")
    policy = tiny_policy("qwen3", FAST)
    policy.update(BATCHES, likelihood)
    policy.write_state(tmp_path / "own")
    parts = {key: part for _, key, _, part in saved_parts(tmp_path / "own")}
    (tmp_path / "narrow").mkdir()
    narrow = {key: part[:1].clone() if part.ndim else part for key, part in parts.items()}
    save_file(narrow, tmp_path / "narrow" / "state.safetensors")
    for folder in ("gpt2", "narrow"):
        with pytest.raises(
            AgentError,
            match=rf"{folder}: the training state belongs to another model or to other LoRA settings: \d+",
        ):
            policy.read_state(tmp_path / folder)
    live = states._tensors(policy._optimisers)
    assert all(torch.equal(live[key], part) for key, part in parts.items())


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*/agents/ada: File too large \(free some space"):
        tiny_policy("qwen3").write_state(tmp_path / "agents" / "ada")


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*/file/ada: Not a directory"):
        tiny_policy("qwen3").write_state(tmp_path / "file" / "ada")
    with pytest.raises(StorageError, match=r"cannot read .*/absent: No such file"):
        tiny_policy("qwen3").read_state(tmp_path / "absent")


class Evil:
    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.touched),))


@pytest.mark.parametrize("name", ["state.safetensors", ".metadata"])
def test_a_pickle_is_never_executed(tmp_path: Path, name: str) -> None:
    touched, folder = tmp_path / "touched", tmp_path / "ada"
    policy = tiny_policy("qwen3")
    policy.write_state(folder)
    (folder / name).write_bytes(pickle.dumps(Evil(touched)))
    if name == "state.safetensors":
        with pytest.raises(StorageError, match=r"cannot read .*/ada: not all of it is safetensors files"):
            policy.read_state(folder)
    else:
        policy.read_state(folder)  # does not even look at it
    assert not touched.exists()
