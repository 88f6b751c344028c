"""When a run writes checkpoints (`checkpoint.every`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from hacrl.runs.checkpoints import SaveCost

SHARE = 0.05
"""With `auto`, of the run's time, at most."""
SMALL = 250_000_000
"""Bytes. With `auto`, checkpoints of toy models are written after every step, whatever they cost."""


class Cadence:
    """Says after which steps a checkpoint is due, besides the last one and the one a run is stopped after."""

    def __init__(
        self,
        every: int | Literal["auto"],
        cost: Callable[[], SaveCost | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`cost` is that of the last checkpoint; None: there is none yet, or it is still being written."""
        self._every = every
        self._cost = cost
        self._clock = clock
        self._saved: float | None = None
        """When training went on after the last checkpoint."""

    def due(self, step: int) -> bool:
        """Whether to write one after this step."""
        if self._every != "auto":
            return step % self._every == 0
        if self._saved is None:
            return True
        cost = self._cost()
        if cost is None:
            return False
        return cost.size <= SMALL or cost.seconds <= SHARE * (self._clock() - self._saved)

    def saved(self) -> None:
        """Training goes on after a checkpoint."""
        self._saved = self._clock()
