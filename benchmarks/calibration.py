"""How often a verdict is wrong, by simulation: `python -m benchmarks.calibration`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.command import command
from hacrl.analysis.compare.statistics import ALPHA, Array, compare, measure


@dataclass(frozen=True, slots=True)
class World:
    """What simulated methods are like. Spreads are in log-odds: 0.1 moves an accuracy of .5 by .025."""

    seeds: int = 5
    problems: int = 200
    agents: int = 2
    seed_spread: float = 0.1
    """How far a method's accuracy differs from seed to seed."""
    problem_spread: float = 1.5
    """How far problems differ in difficulty."""
    taste_spread: float = 0.0
    """How far methods differ from problem to problem while none is better on average."""
    shift: float = 0.0
    """How much better the first method is."""


def simulate(world: World, rng: np.random.Generator, methods: int = 2) -> Array:
    """Outcomes [method, seed, problem] of 0/1 responses, the mean of the agents."""
    difficulty = rng.normal(0, world.problem_spread, world.problems)
    taste = rng.normal(0, world.taste_spread, (methods, 1, world.problems))
    luck = rng.normal(0, world.seed_spread, (methods, world.seeds, 1))
    shift = np.eye(methods)[0].reshape(methods, 1, 1) * world.shift
    chance = 1 / (1 + np.exp(-(difficulty + taste + luck + shift)))
    correct = rng.random((world.agents, *chance.shape)) < chance
    return np.asarray(correct.mean(axis=0))


def verdict_shares(world: World, comparisons: int, seed: int = 0) -> tuple[float, float]:
    """The shares of simulated comparisons of two methods in which the first is called better, and worse."""
    rng = np.random.default_rng(seed)
    better = worse = 0
    for _ in range(comparisons):
        first, second = simulate(world, rng)
        interval = measure(first - second, draws=1000).interval()
        better += interval.low > 0
        worse += interval.high < 0
    return better / comparisons, worse / comparisons


def any_wrong_verdict(world: World, families: int, methods: int, seed: int = 0) -> float:
    """The share of families in which any of several equal methods is called different from the reference."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(families):
        reference, *others = simulate(world, rng, methods)
        found = compare({number: other - reference for number, other in enumerate(others)})
        wrong += any(difference.verdict != "no difference seen" for difference in found.values())
    return wrong / families


def plain_bootstrap(world: World, comparisons: int, seed: int = 0, draws: int = 400) -> float:
    """The share called different by percentiles of seeds resampled, then problems within each."""
    rng = np.random.default_rng(seed)
    even = np.full(world.problems, 1 / world.problems)
    different = 0
    for _ in range(comparisons):
        first, second = simulate(world, rng)
        chosen = rng.integers(world.seeds, size=(draws, world.seeds))
        weights = rng.multinomial(world.problems, even, size=chosen.shape) / world.problems
        means = (weights * (first - second)[chosen]).sum(axis=2).mean(axis=1)
        low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2])
        different += low > 0 or high < 0
    return different / comparisons


NULL_WORLDS = {
    "as usual": World(),
    "seeds hardly differ": World(seed_spread=0.02),
    "seeds differ much": World(seed_spread=0.3),
    "1,000 problems": World(problems=1000),
    "20 problems": World(problems=20),
    "equal on average, not by problem": World(taste_spread=0.5),
    "3 seeds": World(seeds=3),
    "10 seeds": World(seeds=10),
}
SHIFTS = (0.2, 0.3, 0.4, 0.6)


def main() -> None:
    """Simulate comparisons and print how often their verdicts are wrong: the tables of docs/compare.md."""
    print("| two equal methods | called better | called worse | either | plain bootstrap: either |")
    print("|---|---|---|---|---|")
    for name, world in NULL_WORLDS.items():
        better, worse = verdict_shares(world, 4000)
        plain = plain_bootstrap(world, 300)
        print(f"| {name} | {better:.3f} | {worse:.3f} | {better + worse:.3f} | {plain:.2f} |", flush=True)
    any_wrong = any_wrong_verdict(World(), 1000, methods=6)
    print(f"\nAny wrong verdict among five methods equal to their reference: {any_wrong:.3f}")
    print("\n| true difference in accuracy | called better, 5 seeds | 10 seeds |\n|---|---|---|")
    for shift in SHIFTS:
        first, second = simulate(
            World(problems=100_000, seed_spread=0, shift=shift), np.random.default_rng(0)
        )
        power = [verdict_shares(World(shift=shift, seeds=seeds), 1000)[0] for seeds in (5, 10)]
        print(f"| {(first - second).mean():.3f} | {power[0]:.2f} | {power[1]:.2f} |", flush=True)


app = command(main)

if __name__ == "__main__":
    app()
