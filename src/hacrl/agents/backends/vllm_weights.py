"""The weights that vLLM should hold, and comparing them with those that it holds.

vLLM keeps some weights in one piece that transformers keeps in several (q, k, v), and pads vocabularies.
Its `packed_modules_mapping` says which, so that all weights can be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from hacrl.agents.ranks import whole
from hacrl.runs.files import explain_library_errors

BYTES_PER_FILE = 1 << 31
NamedWeights = Iterable[tuple[str, Tensor]]
Packing = Mapping[str, Sequence[str]]
"""Name of a module of vLLM -> the modules of transformers that it takes the place of."""


class TrainedWeights:
    """Every weight under the name it has without adapters, with the LoRA adapters merged in or left out.

    One whole tensor at a time, anew in every pass. Of several ranks all have to make the pass, to its end.
    """

    def __init__(self, model: nn.Module, *, merged: bool = True) -> None:
        self._model = model
        self._merged = merged

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._model.named_parameters():
            if ".lora_" in name:
                continue
            with torch.no_grad():  # not around `yield`, where it would be on for whoever takes the weight
                owner, _, leaf = name.rpartition(".base_layer.")
                weight = whole(parameter.detach())
                if owner and leaf == "weight" and self._merged:
                    layer: Any = self._model.get_submodule(owner)
                    for adapter in layer.active_adapters:
                        weight = weight + _delta(layer, adapter)
            yield (f"{owner}.{leaf}" if owner else name), weight


def _delta(layer: Any, adapter: str) -> Tensor:
    """What an adapter adds to a weight, as peft computes it, of whole tensors."""
    delta = whole(layer.lora_B[adapter].weight.detach()) @ whole(layer.lora_A[adapter].weight.detach())
    scaled: Tensor = (delta.T if layer.fan_in_fan_out else delta) * layer.scaling[adapter]
    return scaled


def packed(
    weights: NamedWeights, held: Collection[str], packing: Packing
) -> Iterator[tuple[str, list[Tensor]]]:
    """The weights under the names that vLLM holds them by, those of several modules side by side."""
    waiting: dict[str, dict[str, Tensor]] = {}
    for name, weight in weights:
        whole_name, part, parts = _place(name, held, packing)
        if not parts:
            yield name, [weight]
            continue
        found = waiting.setdefault(whole_name, {})
        found[part] = weight
        if len(found) == len(parts):
            del waiting[whole_name]
            yield whole_name, [found[each] for each in parts]


def _place(name: str, held: Collection[str], packing: Packing) -> tuple[str, str, Sequence[str]]:
    """Which weight this one is a part of, which part, and of how many; no parts: it is one of its own."""
    for module, parts in packing.items():
        for part in parts:
            whole_name = name.replace(f".{part}.", f".{module}.")
            if whole_name != name and whole_name in held:
                return whole_name, part, parts
    return name, "", ()


@torch.no_grad()
def difference(engine: nn.Module, weights: NamedWeights, rank: int = 0, size: int = 1) -> str | None:
    """Name of a weight that the engine's model does not hold bit by bit as given; None if there is none.

    The engine may be one of `size` among which weights are split (tensor parallel).
    """
    held = {name.replace(".base_layer.", "."): weight for name, weight in engine.named_parameters()}
    different: list[str] = []
    for name, parts in packed(weights, set(held), getattr(engine, "packed_modules_mapping", {})):
        found = held.pop(name, None)
        if found is None or not _holds_a_form(found, parts, rank, size):
            different.append(name)
    return next(iter([*different, *held]), None)


def forms(wanted: Tensor) -> Iterator[Tensor]:
    """How vLLM may hold a weight: as it is, or transposed (GPT-2's layers)."""
    yield wanted
    if wanted.ndim == 2:
        yield wanted.T


def _holds_a_form(held: Tensor, parts: Sequence[Tensor], rank: int, size: int) -> bool:
    """Whether a weight is held in one of its forms; rows may be padded."""
    parts = [part.to(held.dtype) for part in parts]
    joined = torch.cat(parts) if parts[1:] else parts[0]
    found = [*forms(joined), *(_shards(joined, parts, len(held), rank, size) if size > 1 else ())]
    return any(held.shape[1:] == form.shape[1:] and torch.equal(held[: len(form)], form) for form in found)


def _shards(joined: Tensor, parts: Sequence[Tensor], rows: int, rank: int, size: int) -> Iterator[Tensor]:
    """How one of several engines may hold a weight: by columns, by rows of every part, or by padded rows.

    Where there are fewer keys and values than engines, several have the same ones.
    """
    if joined.ndim == 2:
        yield joined.chunk(size, 1)[rank]
    first, *rest = parts
    if len(first) % size:
        yield joined[rank * rows : (rank + 1) * rows]
        return
    each = (rows - len(first) // size) // len(rest) if rest else 0
    lengths = [len(first) // size, *[each] * len(rest)]
    if all(length > 0 and len(part) % length == 0 for part, length in zip(parts, lengths, strict=True)):
        places = [rank * (len(part) // length) // size for part, length in zip(parts, lengths, strict=True)]
        yield torch.cat(
            [
                part[place * length : (place + 1) * length]
                for part, length, place in zip(parts, lengths, places, strict=True)
            ]
        )


@torch.no_grad()
def write_weights(weights: NamedWeights, folder: Path) -> None:
    """Safetensors of at most a few gigabytes, so that the whole model is never in memory a second time."""
    part: dict[str, Tensor] = {}
    files = size = 0

    def flush() -> None:
        with explain_library_errors(folder, "write"):
            save_file(part, folder / f"weights-{files:05d}.safetensors")

    for name, weight in weights:
        part[name] = weight.cpu().contiguous()
        size += weight.nbytes
        if size >= BYTES_PER_FILE:
            flush()
            part, files, size = {}, files + 1, 0
    flush()
