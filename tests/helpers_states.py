"""Reads states without torch's distributed checkpoint: what any number of ranks wrote, put together."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open

INFO = "DCP_SHARDING_INFO"


def saved_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor as a whole. Nothing but safetensors files may be there."""
    whole: dict[str, torch.Tensor] = {}
    for file, key, offset, part in saved_parts(folder):
        assert file.suffix == ".safetensors"
        ends = [start + length for start, length in zip(offset, part.shape, strict=True)]
        before = whole.get(key, part.new_zeros([0] * part.ndim))
        shape = [max(ours, end) for ours, end in zip(before.shape, ends, strict=True)]
        whole[key] = part.new_zeros(shape)
        whole[key][tuple(slice(length) for length in before.shape)] = before
        whole[key][tuple(slice(start, end) for start, end in zip(offset, ends, strict=True))] = part
    return whole


def saved_parts(folder: Path) -> list[tuple[Path, str, list[int], torch.Tensor]]:
    """Of every part of a tensor: its file, name, place and content."""
    parts = []
    for path in sorted(folder.iterdir()):
        with safe_open(path, "pt") as file:
            info = json.loads((file.metadata() or {}).get(INFO, "{}"))
            for key in file.keys():  # noqa: SIM118 (the file itself is no mapping)
                tensor = file.get_tensor(key)
                place = info[key]["saved_offsets"] if info else [0] * tensor.ndim
                parts.append((path, key, place, tensor))
    return parts
