"""A model's fingerprint: cheap enough to be taken in every step, on the device the weights are on.

It tells one policy from the next. It is no defence against somebody who wants two models to look the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hacrl.agents.ranks import whole

WORDS = 1 << 16
"""64-bit words that are summed up at once: few enough to stay in the processor's cache."""
BYTES = 8


def fingerprint(parameters: Iterable[tuple[str, Tensor]]) -> str:
    """16 hex digits of all names and weights, in their order; all ranks have to call it.

    Every block of 64-bit words is summed with a factor of its own for each word, modulo 2^64. The factors are
    odd, so a change of a single word is always seen; one of several, but for a chance of at most 2^-32.
    """
    digest = hashlib.blake2b(digest_size=8)
    sums: list[Tensor] = []
    for name, parameter in parameters:
        weights = whole(parameter.detach())
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}".encode())
        sums += _sums(weights)
    if sums:
        digest.update(torch.stack(sums).cpu().numpy().tobytes())  # one transfer from the device for all
    return digest.hexdigest()


def _sums(weights: Tensor) -> Iterator[Tensor]:
    """One number per block."""
    content = weights.contiguous().flatten().view(torch.uint8)
    missing = -len(content) % BYTES
    if missing or content.storage_offset() % BYTES:
        content = F.pad(content, (0, missing))  # a copy that can be read as whole words
    words = content.view(torch.int64)
    factors = _factors(words.device)
    for block in torch.split(words, WORDS):
        yield (block * factors[: len(block)]).sum()


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> Tensor:
    """Odd numbers, always the same ones."""
    drawn = np.random.Generator(np.random.Philox(key=0)).integers(-(2**63), 2**63, WORDS, dtype=np.int64)
    return torch.from_numpy(drawn | 1).to(device)
