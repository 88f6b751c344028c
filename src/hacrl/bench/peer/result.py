"""What the comparison found, as data; `--json` writes it as it is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from hacrl.bench.peer.workload import Workload


@dataclass(frozen=True)
class StepTiming:
    """Seconds of one step by phase, the response tokens it trained on, and its useful work."""

    generate: float
    update: float
    other: float
    """Rewards, advantages, batches; for TRL also scoring the answers with the old policy."""
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
    def of(cls, values: list[float]) -> Spread:
        """Median, smallest and largest value."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Memory:
    """Megabytes of a process that runs nothing but one side's steps."""

    peak: float
    after_imports: float


@dataclass(frozen=True)
class Side:
    """One side's measured steps; every ratio is taken within one round of alternating steps."""

    name: str
    generate: Spread
    update: Spread
    other: Spread
    total: Spread
    tokens_per_second: Spread
    speedup: Spread
    """Seconds of TRL's step over seconds of this one."""
    gemm_share: Spread
    """The step's useful floating-point operations per second over those of a large matrix product."""
    memory: Memory


@dataclass(frozen=True)
class Check:
    """One quantity on which both sides must agree."""

    engine: str
    quantity: str
    difference: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the difference (never NaN) is within the limit."""
        return self.difference <= self.limit


@dataclass(frozen=True)
class Comparison:
    """Everything one run of the benchmark found."""

    workload: Workload
    parameters: int
    repeats: int
    environment: dict[str, str]
    gemm_gflops: Spread
    sides: list[Side]
    parity: list[Check]

    @property
    def agrees(self) -> bool:
        """Whether both sides compute the same thing."""
        return all(check.passed for check in self.parity)
