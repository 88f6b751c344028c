"""Argument checks that name the argument, the value and what was expected."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Magnitudes beyond these are refused. Together with the bound on log-ratios they keep every product
# in the losses within the range of float32.
LARGEST_REWARD = 1e12
LARGEST_ADVANTAGE = 1e15
LARGEST_OMEGA = 1e6


def check_shapes(**tensors: tuple[Tensor, str]) -> dict[str, int]:
    """Check that axes called by the same letter have the same length; return the length of each letter.

    `check_shapes(rewards=(rewards, "jbi"), omega=(omega, "kj"))`.
    """
    lengths: dict[str, int] = {}
    for name, (tensor, axes) in tensors.items():
        layout = f"[{', '.join(axes)}]"
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor {layout}, got {type(tensor).__name__}")
        if tensor.dim() != len(axes):
            raise ValueError(f"{name}: expected a tensor {layout}, got shape {tuple(tensor.shape)}")
        for axis, length in zip(axes, tensor.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise ValueError(
                    f"{name}: expected {lengths[axis]} along axis {axis} of {layout}, "
                    f"got shape {tuple(tensor.shape)}"
                )
    return lengths


def check_finite(name: str, tensor: Tensor, limit: float = math.inf) -> None:
    """Refuse NaN, infinities and magnitudes above `limit`, naming the first offending entry."""
    bad = ~torch.isfinite(tensor) | (tensor.abs() > limit)
    if not bool(bad.any()):
        return
    index = tuple(bad.nonzero()[0].tolist())
    bound = "a finite number" if math.isinf(limit) else f"a finite number of magnitude at most {limit:g}"
    where = f"[{', '.join(map(str, index))}]" if index else ""
    raise ValueError(f"{name}{where}: expected {bound}, got {tensor[index].item()}")


def as_mask(name: str, tensor: Tensor) -> Tensor:
    """A boolean mask from booleans or zeros and ones; anything else is refused."""
    if tensor.dtype == torch.bool:
        return tensor
    neither = (tensor != 0) & (tensor != 1)
    if bool(neither.any()):
        raise ValueError(f"{name}: expected booleans or 0 and 1, got {tensor[neither][0].item()}")
    return tensor.bool()


def check_number(name: str, value: float, *, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse anything but a finite number within [low, high]."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name}: expected a number in [{low:g}, {high:g}], got {value!r}")


def check_count(name: str, value: int, *, low: int = 0) -> None:
    """Refuse anything but a whole number of at least `low`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name}: expected a whole number >= {low}, got {value!r}")


def as_token_mask(mask: Tensor) -> Tensor:
    """A boolean mask[s, t] of which every row has at least one real token."""
    mask = as_mask("mask", mask)
    empty = ~mask.any(-1)
    if bool(empty.any()):
        raise ValueError(f"mask[{int(empty.nonzero()[0])}]: expected at least one token, got none")
    return mask
