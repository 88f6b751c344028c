"""Several processes that hold one agent together: FSDP2 shards its weights, gradients and moments over them.

There are two kinds of work. Without gradients every rank gathers all weights first and does its share alone
(`Ranks.gathered`, `Ranks.share`). With gradients the weights are gathered layer by layer: every rank has to
run the model equally often (`Ranks.turns`), and the gradients of all ranks are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup, all_reduce
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

T = TypeVar("T")


class Ranks:
    """The group as one of its members sees it; a process alone is a group of one, which shards nothing."""

    def __init__(self, rank: int = 0, count: int = 1, device: str = "cpu") -> None:
        """Of a group of several, `torch.distributed` has to be initialised."""
        self.rank = rank
        self.count = count
        self._device = device
        self._mesh = DeviceMesh(device, list(range(count))) if count > 1 else None

    @property
    def several(self) -> bool:
        """Whether there is anybody else."""
        return self._mesh is not None

    @property
    def group(self) -> ProcessGroup | None:
        """Whom all of them talk through."""
        return None if self._mesh is None else self._mesh.get_group()

    def shard(self, model: nn.Module, *parts: nn.Module) -> None:
        """Leave every rank its part of the weights of each layer, of the given `parts`, and of the rest."""
        if self._mesh is None:
            return
        names = {
            name for module in model.modules() for name in getattr(module, "_no_split_modules", ()) or ()
        }
        layers = [module for module in model.modules() if type(module).__name__ in names]
        exact = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for module in (*layers, *parts, model):
            sharded = fully_shard(module, mesh=self._mesh, reshard_after_forward=True, mp_policy=exact)
            sharded.set_gradient_divide_factor(1.0)  # losses are shares of one mean: their gradients add up
            sharded.set_force_sum_reduction_for_comms(True)  # gloo has no other
            sharded.set_reduce_scatter_unused_params(True, recurse=False)  # a rank may not need a weight
        token = torch.zeros(1, 1, dtype=torch.long, device=self._device)
        with torch.no_grad():  # FSDP takes the first module that runs for the whole model
            model(input_ids=token, attention_mask=torch.ones_like(token))

    @contextmanager
    def gathered(self, model: nn.Module) -> Iterator[None]:
        """All weights on every rank: each may run the model as often as it likes, without gradients."""
        parts = [m for m in model.modules() if isinstance(m, FSDPModule)] if self.several else []
        for part in parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        try:
            yield
        finally:
            for part in parts:
                part.reshard()
                part.set_reshard_after_forward(True, recurse=False)

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of the items; those of all ranks in order are the whole."""
        return items[len(items) * self.rank // self.count : len(items) * (self.rank + 1) // self.count]

    def turns(self, rows: Sequence[int], cut: Callable[[Sequence[int]], list[list[int]]]) -> list[list[int]]:
        """This rank's rows cut into micro-batches; empty ones at the end make them as many on every rank."""
        shares = [cut(rows[rank :: self.count]) for rank in range(self.count)]
        mine = shares[self.rank]
        return mine + [[]] * (max(map(len, shares)) - len(mine))

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self._mesh is None:
            return tensor
        summed = tensor.to(self._device, copy=True)
        all_reduce(summed, group=self.group)
        return summed.to(tensor.device)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that is spread over the ranks; every rank has to ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_copy(tensor: Tensor) -> Tensor | None:
    """A copy of the whole on the CPU of the first rank; None on the others, which have to ask too."""
    full = whole(tensor.detach())
    if isinstance(tensor, DTensor) and tensor.device_mesh.get_rank() > 0:
        return None
    return full.to("cpu", copy=True).contiguous()


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """A model's `state_dict`; if it is sharded, whole on the first rank's CPU, and nothing on the others."""
    copies: dict[int, Tensor | None] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in copies:  # tied weights stay one
            copies[id(tensor)] = whole_copy(tensor) if isinstance(tensor, DTensor) else tensor.detach()
        if (copied := copies[id(tensor)]) is not None:
            state[name] = copied
    return state
