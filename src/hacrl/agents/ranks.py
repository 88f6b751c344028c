"""Several processes that hold one agent together: FSDP2 shards its weights, gradients and moments over them.

Without gradients, every rank gathers all weights first and then does its share alone (`Ranks.gathered`,
`Ranks.share`). With gradients, the weights are gathered layer by layer: every rank has to run the model
equally often (`Ranks.micro_batches`), and the gradients of all ranks are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup, all_reduce
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.batching import micro_batches, shares

T = TypeVar("T")


class Ranks:
    """The process group as one of its ranks sees it. A single process is a group of one: no sharding."""

    def __init__(self, rank: int = 0, count: int = 1, device: str = "cpu") -> None:
        """With more than one rank, `torch.distributed` has to be initialised."""
        self.rank = rank
        self.count = count
        self._device = device
        self._mesh = DeviceMesh(device, list(range(count))) if count > 1 else None

    @property
    def several(self) -> bool:
        """Whether there is more than one rank."""
        return self._mesh is not None

    @property
    def group(self) -> ProcessGroup | None:
        """The process group of all ranks; None for a single one."""
        return None if self._mesh is None else self._mesh.get_group()

    def shard(self, model: nn.Module, *parts: nn.Module) -> None:
        """Shard the weights of each layer, of the given `parts`, and of the rest over the ranks."""
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
            sharded.set_force_sum_reduction_for_comms(True)  # gloo supports no other
            sharded.set_reduce_scatter_unused_params(
                True, recurse=False
            )  # a rank's rows may not use every weight
        token = torch.zeros(1, 1, dtype=torch.long, device=self._device)
        with torch.no_grad():  # FSDP takes the first module that runs for the root
            model(input_ids=token, attention_mask=torch.ones_like(token))

    @contextmanager
    def gathered(self, model: nn.Module) -> Iterator[None]:
        """All weights on every rank: each may run the model any number of times, without gradients."""
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

    def share(self, items: Sequence[T], together: int = 1) -> Sequence[T]:
        """This rank's part of the items; the parts of all ranks, concatenated in order, are all items.

        Ranks that work `together`, so many at a time, get all their parts.
        """
        first = self.rank // together * together
        return items[len(items) * first // self.count : len(items) * (first + together) // self.count]

    def any(self, here: bool) -> bool:
        """Whether it is so on any rank: all have to ask."""
        return bool(self.total(torch.tensor([float(here)])).item())

    def micro_batches(self, rows: Sequence[Row], budget: int, shares_prompts: bool) -> list[list[int]]:
        """This rank's rows in micro-batches, plus empty ones so that all ranks have equally many."""
        cuts = []
        for part in shares(rows, self.count, shares_prompts):
            batches = micro_batches([rows[i] for i in part], budget, shares_prompts)
            cuts.append([[part[i] for i in batch] for batch in batches])
        mine = cuts[self.rank]
        return mine + [[]] * (max(map(len, cuts)) - len(mine))

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self._mesh is None:
            return tensor
        summed = tensor.to(self._device, copy=True)
        all_reduce(summed, group=self.group)
        return summed.to(tensor.device)


def as_forward(module: nn.Module, name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function as a method of this name that FSDP treats like `forward`: it gathers weights around it.

    The first function of a name stays. A module that is not sharded needs no method.
    """
    if not isinstance(module, FSDPModule):
        return function
    if not hasattr(module, name):
        setattr(module, name, function)
        register_fsdp_forward_method(cast(nn.Module, module), name)
    method: Callable[..., Tensor] = getattr(module, name)
    return method


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of one that may be sharded. A collective: every rank has to call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_copy(tensor: Tensor) -> Tensor | None:
    """A CPU copy of the full tensor on the first rank, None on the others. A collective, like `whole`."""
    full = whole(tensor.detach())
    if isinstance(tensor, DTensor) and tensor.device_mesh.get_rank() > 0:
        return None
    return full.to("cpu", copy=True).contiguous()


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """A model's `state_dict`; if it is sharded, complete on the first rank's CPU and empty on the others."""
    copies: dict[int, Tensor | None] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in copies:  # tied weights stay tied
            copies[id(tensor)] = whole_copy(tensor) if isinstance(tensor, DTensor) else tensor.detach()
        if (copied := copies[id(tensor)]) is not None:
            state[name] = copied
    return state
