from __future__ import annotations

import copy
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from hacrl.agents.backends.vllm_weights import TrainedWeights, difference
from hacrl.agents.loading import with_adapters
from hacrl.recipe.agent_settings import LoraSettings
from helpers_agents import tiny_model


class Engine(nn.Module):
    """The weights as vLLM keeps them: q, k, v in one piece, the vocabulary filled up."""

    packed_modules_mapping: ClassVar = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.layer = nn.Module()
        self.layer.qkv_proj = nn.Module()
        parts = [weights[f"layer.{part}_proj.weight"] for part in "qkv"]
        self.layer.qkv_proj.weight = nn.Parameter(torch.cat(parts))
        self.layer.fc = nn.Module()
        self.layer.fc.weight = nn.Parameter(weights["layer.fc.weight"].T.clone())
        self.embed = nn.Module()
        self.embed.weight = nn.Parameter(torch.cat([weights["embed.weight"], torch.zeros(3, 4)]))


def some_weights() -> dict[str, Tensor]:
    shapes = {"layer.q_proj": 8, "layer.k_proj": 4, "layer.v_proj": 4, "layer.fc": 4, "embed": 5}
    torch.manual_seed(0)
    return {f"{name}.weight": torch.randn(rows, 4) for name, rows in shapes.items()}


def test_weights_in_another_layout_are_the_same() -> None:
    weights = some_weights()
    assert difference(Engine(weights), weights.items()) is None


@pytest.mark.parametrize("name", list(some_weights()))
def test_one_bit_of_one_number_is_a_difference(name: str) -> None:
    weights = some_weights()
    engine = Engine(weights)
    changed = weights[name].clone()
    changed[-1, -1] = torch.nextafter(changed[-1, -1], torch.tensor(9.0))
    found = difference(engine, (weights | {name: changed}).items())
    assert found == ("layer.qkv_proj.weight" if "layer." in name and "fc" not in name else name)


def test_weights_only_one_side_has_are_a_difference() -> None:
    weights = some_weights()
    engine = Engine(weights)
    assert difference(engine, (weights | {"extra.weight": torch.ones(1)}).items()) == "extra.weight"
    del weights["layer.k_proj.weight"]
    assert difference(engine, weights.items()) == "layer.qkv_proj.weight"


def test_adapters_are_merged_without_touching_them() -> None:
    model = tiny_model("llama")
    adapted = with_adapters(copy.deepcopy(model), LoraSettings(rank=2), seed=0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    found = dict(TrainedWeights(adapted.get_base_model()))
    expected = dict(copy.deepcopy(adapted).merge_and_unload().named_parameters())
    plain = dict(model.named_parameters())
    assert found.keys() == expected.keys() == plain.keys()
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name])
    assert any(not torch.equal(found[name], plain[name]) for name in plain)


def split(weights: dict[str, Tensor], rank: int) -> Engine:
    """One of two engines among which vLLM splits weights: columns of `fc`, rows of all others."""
    parts = {name: weight.chunk(2, int(name == "layer.fc.weight"))[rank] for name, weight in weights.items()}
    embed = torch.cat([weights["embed.weight"], torch.zeros(3, 4)])
    engine = Engine(parts | {"embed.weight": torch.zeros(1, 4)})
    engine.embed.weight = nn.Parameter(embed.chunk(2)[rank])
    engine.layer.fc.weight = nn.Parameter(parts["layer.fc.weight"].clone())
    return engine


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", [None, *some_weights()])
def test_engines_that_split_weights_hold_their_parts(rank: int, name: str | None) -> None:
    weights = some_weights()
    engine = split(weights, rank)
    if name is None:
        assert difference(engine, weights.items(), rank, 2) is None
        assert difference(engine, weights.items(), 1 - rank, 2) is not None
        return
    with torch.no_grad():
        held = next(weight for key, weight in engine.named_parameters() if _owner(name) in key)
        held[0, 0] += 1e-3
    assert difference(engine, weights.items(), rank, 2) is not None


@pytest.mark.parametrize("rank", range(4))
def test_keys_and_values_that_several_engines_have(rank: int) -> None:
    """Two heads of keys and values for four engines."""
    torch.manual_seed(0)
    weights = {f"layer.{part}_proj.weight": torch.randn(8 if part == "q" else 4, 4) for part in "qkv"}
    q, k, v = weights.values()
    engine = nn.Module()
    engine.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}  # type: ignore[assignment]
    engine.layer = nn.Module()
    engine.layer.qkv_proj = nn.Module()
    held = torch.cat([q[2 * rank : 2 * rank + 2], *(each[rank // 2 * 2 :][:2] for each in (k, v))])
    engine.layer.qkv_proj.weight = nn.Parameter(held)
    assert difference(engine, weights.items(), rank, 4) is None
    assert difference(engine, weights.items(), (rank + 2) % 4, 4) == "layer.qkv_proj.weight"


def _owner(name: str) -> str:
    return "qkv_proj" if "_proj" in name else name
