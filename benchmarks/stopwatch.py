"""Times the steps of a run, in place of its display."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from hacrl.training.team import Team

PHASES = ("sample", "verify", "exchange", "update")
CAPABILITY = "capability"
"""Contextual capability, a part of `exchange`; methods that do not need it spend no time on it."""


class Stopwatch:
    """A display that shows nothing and times the steps after the first, which warms up."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.steps: list[float] = []
        self.phases: dict[str, list[float]] = defaultdict(list)

    def start(self, team: Team, step: int) -> None:
        """Nothing to show."""

    def status(self, text: str) -> None:
        """Nothing to show."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the time."""
        now = time.perf_counter()
        if self._last is not None:
            self.steps.append(now - self._last)
            for phase in (*PHASES, CAPABILITY):
                keys = [key for key in metrics if key.startswith(f"time/{phase}")]
                self.phases[phase].append(sum(metrics[key] for key in keys))
        self._last = now

    def warn(self, text: str) -> None:
        """Nothing to show."""

    def close(self) -> None:
        """Nothing to do."""
