"""Comparing the weights a vLLM engine holds with those it should hold.

vLLM keeps some weights in one piece that transformers keeps in several (q, k, v), and pads vocabularies.
Its `packed_modules_mapping` says which, so that all weights can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight under the name it has without adapters, with the LoRA adapters merged in."""
    return dict(_merged(model))


def _merged(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        owner, _, leaf = name.rpartition(".base_layer.")
        if not owner:
            yield name, parameter.detach()
            continue
        layer: Any = model.get_submodule(owner)
        weight = parameter.detach()
        if leaf == "weight":
            for adapter in layer.active_adapters:
                weight = weight + layer.get_delta_weight(adapter)
        yield f"{owner}.{leaf}", weight


@torch.no_grad()
def difference(engine: nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    """Name of a weight that the engine's model does not hold bit by bit as given; None if there is none."""
    packed: Mapping[str, Sequence[str]] = getattr(engine, "packed_modules_mapping", {})
    missing = dict.fromkeys(weights)
    for name, held in engine.named_parameters():
        parts = _parts(name, packed)
        if any(part not in weights for part in parts):
            return name
        if not _same(held, torch.cat([weights[part] for part in parts]) if parts[1:] else weights[name]):
            return name
        for part in parts:
            missing.pop(part, None)
    return next(iter(missing), None)


def _parts(name: str, packed: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of the weights that the engine keeps in one piece under this name."""
    for whole, parts in packed.items():
        if f".{whole}." in name:
            return [name.replace(f".{whole}.", f".{part}.") for part in parts]
    return [name]


def _same(held: Tensor, wanted: Tensor) -> bool:
    """Whether a weight is held as it is or transposed (GPT-2's layers); rows may be padded."""
    wanted = wanted.to(held.dtype)
    return any(
        held.shape[1:] == form.shape[1:] and torch.equal(held[: len(form)], form)
        for form in ((wanted, wanted.T) if wanted.ndim == 2 else (wanted,))
    )
