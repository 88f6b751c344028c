"""Intervals of means over seeds and problems, and the verdicts that differences support.

Every value belongs to one seed and one problem; all seeds have the same problems. Two methods are compared
through their differences, seed by seed and problem by problem. See `docs/compare.md` for the reasons.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
"""Values in the order [seed, problem]."""
Verdict = Literal["better", "worse", "no difference seen"]
Key = TypeVar("Key", bound=Hashable)

ALPHA = 0.05
"""Accepted chance of any wrong verdict in a whole family of comparisons."""
DRAWS = 5_000
"""Each draw is used with both signs of the seeds' error."""
LEAST_OF_CHANCE = 0.1
"""Few seeds may agree by luck: their variance is at least this share of that of single responses."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval at a level; 0.05 is a 95% interval."""

    mean: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of a comparison."""

    interval: Estimate
    """At the level given by the correction for multiple comparisons."""
    p: float
    """Of this comparison alone, uncorrected."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean and bootstrap draws of its absolute error, largest first."""

    mean: float
    errors: Array
    seeds: int
    """Independent results behind it: seeds, or the base models behind them."""

    @property
    def p(self) -> float:
        """Share of draws in which chance alone gives a mean at least this far from 0."""
        as_far = int(np.searchsorted(-self.errors, -abs(self.mean), side="right"))
        return (1 + as_far) / (1 + len(self.errors))

    @property
    def finest(self) -> float:
        """The smallest level that has an interval."""
        return 1 / (1 + len(self.errors))

    def interval(self, level: float = ALPHA) -> Estimate:
        """The mean +- the error that a share `level` of the draws exceeds. Contains 0 unless p <= level."""
        rank = int(level * (1 + len(self.errors)))
        if rank < 1:
            raise ValueError(f"{len(self.errors)} draws are too few for an interval at level {level:g}")
        half = float(self.errors[rank - 1])
        return Estimate(self.mean, self.mean - half, self.mean + half, level)


def measure(values: Array, *, draws: int = DRAWS) -> Measured:
    """The mean of values [seed, problem] over seeds and problems, both samples of larger populations.

    A hierarchical bootstrap: problems are resampled as they are; the level of the seeds, of which there are
    too few to resample, is Student's t. Both signs are used equally, so b - a mirrors a - b.
    """
    seeds, problems = values.shape
    if seeds < 2:
        raise ValueError(f"at least 2 seeds are needed to tell a difference from chance, got {seeds}")
    mean = float(values.mean())
    by_seed, by_problem = values.mean(axis=1) - mean, values.mean(axis=0) - mean
    chance = _chance_variance(values - mean - by_seed[:, None] - by_problem)
    seed_variance = max(by_seed.var(ddof=1) / seeds, LEAST_OF_CHANCE * chance)
    weights, student = _resampling(seeds, problems, draws)
    problem_error = weights @ by_problem * _without_chance(by_problem, chance)
    seed_error = student * np.sqrt(seed_variance)
    errors = np.abs(np.concatenate([problem_error + seed_error, problem_error - seed_error]))
    return Measured(mean, -np.sort(-errors), seeds)


def _chance_variance(residual: Array) -> float:
    """Variance of the mean due to single responses, not to seeds or problems."""
    seeds, problems = residual.shape
    freedom = (seeds - 1) * (problems - 1)
    return float((residual**2).sum() / freedom / residual.size) if freedom else 0.0


def _without_chance(by_problem: Array, chance: float) -> float:
    """Factor that removes chance from the problems' deviations: the seeds' deviations include it already."""
    if len(by_problem) < 2:
        return 0.0
    variance = float(by_problem.var(ddof=1)) / len(by_problem)
    return float(np.sqrt(max(0.0, 1 - chance / variance))) if variance > 0 else 0.0


@lru_cache(maxsize=2)
def _resampling(seeds: int, problems: int, draws: int) -> tuple[Array, Array]:
    """Weight of each problem in each draw, and Student's t; the same for all comparisons of a size."""
    random = np.random.default_rng(0)
    weights = random.multinomial(problems, np.full(problems, 1 / problems), size=draws) / problems
    return weights, random.standard_t(seeds - 1, size=draws)


def verdict_of(interval: Estimate) -> Verdict:
    """The verdict that the interval of a difference supports."""
    if interval.low > 0:
        return "better"
    return "worse" if interval.high < 0 else "no difference seen"


def holm_levels(p_values: Sequence[float]) -> list[float]:
    """The level at which Holm's procedure tests each comparison of a family.

    The smallest p is tested at ALPHA / m, the next at ALPHA / (m - 1) and so on; from the first that fails
    on, all share the level at which it failed. A p is at most its level exactly when Holm rejects.
    """
    levels = [0.0] * len(p_values)
    passed = 0
    failed = False
    for index in sorted(range(len(p_values)), key=lambda i: p_values[i]):
        levels[index] = ALPHA / (len(p_values) - passed)
        failed = failed or p_values[index] > levels[index]
        passed += not failed
    return levels


def compare(family: Mapping[Key, Array]) -> dict[Key, Difference]:
    """All comparisons of a family: the chance that any of their verdicts is wrong is at most `ALPHA`.

    Each value is a method's outcomes minus its reference's, [seed, problem]: between -1 and 1.
    """
    measured = {key: measure(values) for key, values in family.items()}
    levels = holm_levels([found.p for found in measured.values()])
    return {
        key: Difference(within_range(interval, -1.0), found.p, verdict_of(interval))
        for (key, found), level in zip(measured.items(), levels, strict=True)
        for interval in [found.interval(level)]
    }


@dataclass(frozen=True, slots=True)
class Contrast:
    """A method against a reference."""

    method: str
    reference: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Table:
    """One number for every method. Its contrasts are one family: they are corrected together."""

    methods: dict[str, Estimate]
    contrasts: list[Contrast]


def tabulate(values: Mapping[str, Array], references: Sequence[str]) -> Table:
    """Estimates and contrasts of accuracies [seed, problem] by method."""
    differences = {(m, r): values[m] - values[r] for m, r in pairs(list(values), references)}
    found = compare(differences)
    measured = {method: measure(own) for method, own in values.items()}
    return Table(
        methods={method: within_range(own.interval()) for method, own in measured.items()},
        contrasts=[Contrast(m, r, difference) for (m, r), difference in found.items()],
    )


def pairs(methods: Sequence[str], references: Sequence[str]) -> list[tuple[str, str]]:
    """Every method against every reference; two references are compared with each other once."""
    return [
        (method, reference)
        for number, reference in enumerate(references)
        for method in methods
        if method != reference and method not in references[:number]
    ]


def within_range(estimate: Estimate, least: float = 0.0) -> Estimate:
    """An accuracy's interval, clipped to [0, 1]; that of a difference has -1 as its least value."""
    return replace(estimate, low=max(least, estimate.low), high=min(1.0, estimate.high))
