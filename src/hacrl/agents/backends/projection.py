"""The linear layers of the fused network, LoRA adapters included; those with the same input are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hacrl.agents.backends.packed_weights import linear, packed

Order = Callable[[Sequence[Tensor]], list[Tensor]]
"""Brings the output rows of each layer's tensors into the order in which the network wants them."""


@dataclass(frozen=True, slots=True)
class Projection:
    """`weight` [o, i], to which adapters add `up` [o, r] times `down` [r, i], and a bias."""

    weight: Tensor
    bias: Tensor | None = None
    down: Tensor | None = None
    up: Tensor | None = None

    def __call__(self, states: Tensor) -> Tensor:
        """States [n, i] -> [n, o]. The frozen weights of adapted layers cost no gradient."""
        result = linear(states, self.weight, self.bias)
        if self.down is None or self.up is None:
            return result
        low = F.linear(states.to(self.down.dtype), self.down)
        if low.dtype == result.dtype:
            return torch.addmm(result, low, self.up.T)
        return (result + F.linear(low, self.up)).to(result.dtype)

    def merged(self) -> Projection:
        """The sum as one weight, which is faster; in half precision small changes would be rounded away."""
        if self.down is None or self.up is None or self.weight.dtype.itemsize < 4:
            return self
        return Projection(torch.addmm(self.weight, self.up, self.down), self.bias)

    def packed(self) -> Projection:
        """For decoding few responses (see `packed_weights`)."""
        return replace(self, weight=packed(self.weight))


def as_they_are(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The model's own order."""
    return list(tensors)


def fuse(layers: Sequence[Any], order: Order = as_they_are) -> Projection:
    """Layers with the same input as one; gradients flow back to their weights or adapters."""
    biases = [layer.bias for layer in layers]
    fused = Projection(
        _joined(order([layer.weight for layer in layers])),
        None if biases[0] is None else _joined(order(biases)),
    )
    adapters = [list(active_adapters(layer)) for layer in layers]
    if not any(adapters):
        return fused
    # Layers without adapters have no columns.
    ups = [
        torch.cat([layer.weight.new_empty(len(layer.weight), 0), *(up for _, up in pairs)], 1)
        for layer, pairs in zip(layers, adapters, strict=True)
    ]
    down = torch.cat([down for pairs in adapters for down, _ in pairs])
    up: Tensor = torch.block_diag(*order(ups))  # type: ignore[no-untyped-call]
    fused = replace(fused, down=down, up=up)
    return fused if torch.is_grad_enabled() else fused.merged()


def active_adapters(layer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The down and up projections [r, i], [o, r] that peft would add to a layer's output, scale included."""
    if not isinstance(getattr(layer, "lora_A", None), nn.ModuleDict) or layer.disable_adapters:
        return
    for name in layer.active_adapters:
        if name in layer.lora_A:
            yield layer.lora_A[name].weight, layer.lora_B[name].weight * layer.scaling[name]


def has_plain_lora(layer: Any) -> bool:
    """Whether all adapters of a layer of peft are no more than two matrices and a scale."""
    return all(
        name in layer.lora_A
        and name not in layer.lora_variant
        and not layer.use_dora.get(name)
        and layer.lora_B[name].bias is None
        for name in layer.active_adapters
    )


def supported(layer: Any) -> bool:
    """Whether `fuse` knows what a layer computes."""
    if type(layer) is nn.Linear:
        return True
    if not isinstance(getattr(layer, "lora_A", None), nn.ModuleDict) or not has_plain_lora(layer):
        return False
    dropouts = layer.lora_dropout.values()
    return (
        type(layer.get_base_layer()) is nn.Linear
        and not layer.merged
        and not layer.fan_in_fan_out
        and all(isinstance(dropout, nn.Identity) for dropout in dropouts)
    )


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
