"""How often the words of a comparison are wrong, by simulation: `python -m hacrl.experiments.calibration`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hacrl.experiments.statistics import ALPHA, Array, measure


@dataclass(frozen=True, slots=True)
class World:
    """What two simulated methods are like. Spreads are in log-odds; 0.1 moves an accuracy of .5 by .025."""

    seeds: int = 5
    problems: int = 200
    agents: int = 2
    seed_spread: float = 0.1
    """How far a method's accuracy differs from seed to seed."""
    problem_spread: float = 1.5
    """How far problems differ in difficulty."""
    taste_spread: float = 0.0
    """How far the methods differ from problem to problem while neither is better on average."""
    shift: float = 0.0
    """How much better the first method is."""


def simulate(world: World, random: np.random.Generator) -> Array:
    """One comparison's differences [seed, problem] of 0/1 answers, the mean of the agents."""
    difficulty = random.normal(0, world.problem_spread, world.problems)
    taste = random.normal(0, world.taste_spread, world.problems) / 2
    shape = (world.agents, world.seeds, world.problems)
    correct = []
    for side in (1, -1):
        luck = random.normal(0, world.seed_spread, (world.seeds, 1))
        log_odds = difficulty + luck + side * (taste + world.shift / 2)
        correct.append(random.random(shape) < 1 / (1 + np.exp(-log_odds)))
    return np.asarray((correct[0].astype(float) - correct[1]).mean(axis=0))


def found(world: World, comparisons: int, seed: int = 0, draws: int = 1000) -> tuple[float, float]:
    """The shares of simulated comparisons in which the first method is called better, and worse."""
    random = np.random.default_rng(seed)
    intervals = [measure(simulate(world, random), draws=draws).interval() for _ in range(comparisons)]
    better = sum(interval.low > 0 for interval in intervals)
    worse = sum(interval.high < 0 for interval in intervals)
    return better / comparisons, worse / comparisons


def plain_bootstrap_found(world: World, comparisons: int, seed: int = 0, draws: int = 500) -> float:
    """What the percentile bootstrap (seeds, then problems within) would say: share called different."""
    random = np.random.default_rng(seed)
    different = 0
    for _ in range(comparisons):
        values = simulate(world, random)
        chosen = random.integers(world.seeds, size=(draws, world.seeds))
        weights = random.multinomial(
            world.problems, np.full(world.problems, 1 / world.problems), size=(draws, world.seeds)
        )
        means = (weights * values[chosen]).sum(axis=2).mean(axis=1) / world.problems
        low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2])
        different += low > 0 or high < 0
    return different / comparisons
