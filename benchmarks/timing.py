"""Measured numbers: the phases of one step, and several measurements of one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median


@dataclass(frozen=True)
class StepTiming:
    """Seconds of one step by phase, the response tokens it trained on, and its useful work."""

    generate: float
    update: float
    other: float
    """Rewards, advantages, batches; for TRL also scoring the responses with the old policy."""
    tokens: int
    flops: int

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return self.generate + self.update + self.other


@dataclass(frozen=True)
class Spread:
    """Several measurements of one number."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Median, smallest and largest value."""
        return cls(median(values), min(values), max(values))

    @classmethod
    def with_interval(cls, values: Sequence[float]) -> Spread:
        """Median and its 95% interval by the sign test, for any distribution; below 6 values the range."""
        ordered, cut, tail = sorted(values), 0, 0.5 ** len(values)
        while tail <= 0.025:
            cut += 1
            tail += comb(len(values), cut) * 0.5 ** len(values)
        outermost = max(cut, 1)
        return cls(median(ordered), ordered[outermost - 1], ordered[-outermost])

    def __format__(self, form: str) -> str:
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"
