"""How many answers per second the verifiers check."""

from __future__ import annotations

import time

from hacrl.bench.tables import Table
from hacrl.rewards import Limits, Reward, Rewarder
from hacrl.types import Prompt

EXACT_ANSWERS = 50_000
MATH_ANSWERS = 600
_FORMULAS = (
    (r"\frac{{\sqrt{{{n}}}}}{{{n}}}", r"\frac{{1}}{{\sqrt{{{n}}}}}"),
    (r"{n}x^2 + {n}", r"{n}(x^2 + 1)"),
    (r"\frac{{{n}\pi}}{{7}}", r"{n} \cdot \frac{{\pi}}{{7}}"),
    (r"{n} + 2i", r"2i + {n}"),
)
"""Pairs that are equal, but only for an algebra system: every comparison goes through math-verify."""


def run() -> Table:
    """Time exact matches in this process, and warm math-verify comparisons in a pool of two workers."""
    figures = (
        ("exact matches", exact_rate(EXACT_ANSWERS), 20_000),
        ("math-verify comparisons, warm", math_rate(MATH_ANSWERS), 200),
    )
    rows = [(name, f"{rate:,.0f}", f"{target:,}") for name, rate, target in figures]
    return Table("Verifiers", ("", "per second", "target on two cores"), rows)


def exact_rate(count: int) -> float:
    """Exact matches per second."""
    golds = [str(number) for number in range(count)]
    with Rewarder([Reward("exact")]) as rewarder:
        return _rate(rewarder, golds, golds)


def math_rate(count: int) -> float:
    """Comparisons of different formulas per second, after a first round that warms up everything."""
    pairs = [
        tuple(side.format(n=n) for side in _FORMULAS[n % len(_FORMULAS)]) for n in range(2, 2 * count + 2)
    ]
    golds = [gold for gold, _ in pairs]
    responses = [rf"The answer is \boxed{{{answer}}}." for _, answer in pairs]
    with Rewarder([Reward("math")], limits=Limits(calls=2 * count), workers=2) as rewarder:
        _rate(rewarder, golds[:count], responses[:count])
        return _rate(rewarder, golds[count:], responses[count:])


def _rate(rewarder: Rewarder, golds: list[str], responses: list[str]) -> float:
    prompts = [Prompt(str(number), "", columns={"answer": gold}) for number, gold in enumerate(golds)]
    start = time.perf_counter()
    scores = rewarder.score(prompts, responses, [()] * len(prompts))
    seconds = time.perf_counter() - start
    wrong = [golds[i] for i, score in enumerate(scores) if score.reward != 1.0]
    if wrong:
        raise RuntimeError(f"{len(wrong)} right answers were not accepted, for example {wrong[0]}")
    return len(golds) / seconds
