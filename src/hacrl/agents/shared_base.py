"""Frozen weights in memory once, whichever number of networks uses them; and one engine for all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from torch import nn

Network = TypeVar("Network", bound=nn.Module)
Engine = TypeVar("Engine")


def share_frozen(network: Network) -> Network:
    """A copy with modules, buffers and trainable weights of its own, and the frozen weights themselves.

    Adapters that are added to the copy are not in the original. The frozen weights are the same objects, so
    moving one of the two to another device moves them for both.
    """
    frozen: dict[int, Any] = {
        id(weight): weight for weight in network.parameters() if not weight.requires_grad
    }
    return copy.deepcopy(network, frozen)


class SharedBases:
    """Networks whose weights stay as they are, each loaded once for all agents that train adapters of it."""

    def __init__(self, ranks: Sequence[int] = ()) -> None:
        """`ranks` of the adapters of all agents that will use one engine, which has to make room for them."""
        self.ranks = tuple(ranks)
        self._loaded: dict[Hashable, nn.Module] = {}
        self._engines: dict[Hashable, Any] = {}

    def get(self, key: Hashable, load: Callable[[], nn.Module]) -> nn.Module:
        """A network of its own for every call; those with the same key have the same frozen weights."""
        if key not in self._loaded:
            self._loaded[key] = load().requires_grad_(False)
        return share_frozen(self._loaded[key])

    def engine(self, frozen: nn.Module, start: Callable[[], Engine]) -> Engine:
        """The one engine for all networks with these frozen weights."""
        key = next(id(weight) for weight in frozen.parameters() if not weight.requires_grad)
        if key not in self._engines:
            self._engines[key] = start()
        engine: Engine = self._engines[key]
        return engine
