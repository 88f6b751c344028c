"""One random stream per response: what is drawn depends on neither batch, order nor other agents."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

_RESOLUTION = 1 << 23
"""Uniforms are multiples of 2^-23: below 1 by a margin that survives a float32 multiplication."""


class Stream:
    """The uniform numbers of one response, drawn in order: a function of its four coordinates alone."""

    def __init__(self, seed: int, agent: str, prompt_id: str, sample: int) -> None:
        coordinates = repr((seed, agent, prompt_id, sample)).encode()
        self.key = int.from_bytes(hashlib.blake2b(coordinates, digest_size=16).digest(), "little")
        """128 bits from which other generators may be seeded."""
        self._generator = np.random.Generator(np.random.Philox(key=self.key))

    def uniforms(self, count: int) -> npt.NDArray[np.float32]:
        """The next `count` numbers in [0, 1)."""
        draws = self._generator.integers(_RESOLUTION, size=count, dtype=np.int32)
        return draws.astype(np.float32) / np.float32(_RESOLUTION)
