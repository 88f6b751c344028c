"""Frozen weights in memory once, whichever number of networks uses them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import nn

Network = TypeVar("Network", bound=nn.Module)


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

    def __init__(self) -> None:
        self._loaded: dict[Hashable, nn.Module] = {}

    def get(self, key: Hashable, load: Callable[[], nn.Module]) -> nn.Module:
        """A network of its own for every call; those with the same key have the same frozen weights."""
        if key not in self._loaded:
            self._loaded[key] = load().requires_grad_(False)
        return share_frozen(self._loaded[key])
