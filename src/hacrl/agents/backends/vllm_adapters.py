"""LoRA adapters in vLLM: loaded as adapters beside frozen weights, and compared bit by bit like weights.

vLLM keeps the adapters of several modules side by side (q, k, v), multiplies B by the scale, and fills ranks
up with zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from hacrl.agents.backends.projection import has_plain_lora
from hacrl.agents.ranks import whole

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The largest ranks that vLLM can be started with."""


@dataclass(frozen=True, slots=True)
class AdapterRoom:
    """What an engine has to make room for."""

    count: int
    rank: int

    def settings(self) -> dict[str, Any]:
        """In vLLM's words."""
        rank = next((each for each in RANKS if each >= self.rank), self.rank)
        return {"enable_lora": True, "max_loras": self.count, "max_lora_rank": rank}


@dataclass(frozen=True, slots=True)
class AdaptedModule:
    """The adapter of one linear layer."""

    name: str
    a: Tensor
    b: Tensor
    alpha: float

    @property
    def rank(self) -> int:
        """Rows of A, columns of B."""
        return len(self.a)


def adapted_modules(model: nn.Module) -> list[AdaptedModule]:
    """The adapters of a model as whole tensors: of several ranks all have to ask for them."""
    return [
        AdaptedModule(
            name,
            whole(layer.lora_A[adapter].weight.detach()),
            whole(layer.lora_B[adapter].weight.detach()),
            layer.lora_alpha[adapter],
        )
        for name, layer in _layers(model)
        for adapter in layer.active_adapters
    ]


def adapter_obstacle(model: nn.Module) -> str | None:
    """Why the model's adapters cannot be loaded into vLLM as they are; None: they can."""
    layers = list(_layers(model))
    kinds = {(layer.r[each], layer.lora_alpha[each]) for _, layer in layers for each in layer.active_adapters}
    if len(kinds) != 1 or any(len(layer.active_adapters) != 1 for _, layer in layers):
        return "its modules have different ranks or scales"
    for name, layer in layers:
        (adapter,) = layer.active_adapters
        if not isinstance(layer.get_base_layer(), nn.Linear) or not has_plain_lora(layer):
            return f"{name} is not a linear layer with plain LoRA"
        if layer.scaling[adapter] != layer.lora_alpha[adapter] / layer.r[adapter]:
            return f"the scale of {name} is not alpha / rank"
    return None


def write_adapter(modules: Sequence[AdaptedModule], folder: Path) -> None:
    """In peft's format, which vLLM reads."""
    tensors = {}
    for module in modules:
        tensors[f"base_model.model.{module.name}.lora_A.weight"] = module.a.cpu().contiguous()
        tensors[f"base_model.model.{module.name}.lora_B.weight"] = module.b.cpu().contiguous()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": modules[0].rank,
        "lora_alpha": modules[0].alpha,
        "target_modules": sorted({module.name.rpartition(".")[2] for module in modules}),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


@torch.no_grad()
def adapter_difference(engine: Any, number: int, modules: Iterable[AdaptedModule]) -> str | None:
    """Name of a module whose adapter the engine's model does not have as given; None if there is none."""
    manager = engine.lora_manager
    wanted = {module.name: module for module in modules}
    if number not in manager.lora_index_to_id:
        return next(iter(wanted), None)
    slot = manager.lora_index_to_id.index(number)
    for name, layer in manager.modules.items():
        if not isinstance(layer.lora_a_stacked, tuple):
            continue  # embeddings and head, which we do not adapt
        owner, _, leaf = name.rpartition(".")
        parts = manager.packed_modules_mapping.get(leaf, [leaf])
        for part, stacked_a, stacked_b in zip(parts, layer.lora_a_stacked, layer.lora_b_stacked, strict=True):
            if not _holds(stacked_a[slot, 0], stacked_b[slot, 0], wanted.pop(f"{owner}.{part}", None)):
                return f"{owner}.{part}"
    return next(iter(wanted), None)


def _holds(held_a: Tensor, held_b: Tensor, module: AdaptedModule | None) -> bool:
    rank = 0
    if module is not None:
        rank = module.rank
        b = module.b.to(held_b.dtype) * (module.alpha / rank)
        if not torch.equal(held_a[:rank], module.a.to(held_a.dtype)) or not torch.equal(held_b[:, :rank], b):
            return False
    return not bool(held_a[rank:].any()) and not bool(held_b[:, rank:].any())


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, layer in model.named_modules():
        if getattr(layer, "lora_A", None) is not None:
            yield name, layer
