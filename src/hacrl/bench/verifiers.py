"""How many answers per second the verifiers check."""

from __future__ import annotations

import time

from hacrl.bench.tables import Table
from hacrl.rewards import Limits, Reward, Rewarder
from hacrl.types import Prompt

EXACT_ANSWERS = 50_000
MATH_QUESTIONS = 80
GROUP = 8
"""Answers to one question, each written differently, as in a training step."""
_FORMULAS = (
    (r"\frac{{\sqrt{{{n}}}}}{{{n}}}", r"\frac{{{k}}}{{{k}\sqrt{{{n}}}}}"),
    (r"{n}x + {n}", r"\frac{{{kn}(x + 1)}}{{{k}}}"),
    (r"\frac{{{n}\pi}}{{7}}", r"{kn} \cdot \frac{{\pi}}{{7 \cdot {k}}}"),
    (r"{n} + 2i", r"\frac{{{kn} + 2 \cdot {k}i}}{{{k}}}"),
)
"""Reference and answer, equal only for an algebra system: every comparison goes through math-verify."""


def run() -> Table:
    """Time exact matches in this process, and warm math-verify comparisons in a pool of two workers."""
    figures = (
        ("exact matches", exact_rate(EXACT_ANSWERS), 20_000),
        ("math-verify comparisons, warm", math_rate(MATH_QUESTIONS), 200),
    )
    rows = [(name, f"{rate:,.0f}", f"{target:,}") for name, rate, target in figures]
    return Table("Verifiers", ("", "per second", "target on two cores"), rows)


def exact_rate(count: int) -> float:
    """Exact matches per second."""
    golds = [str(number) for number in range(count)]
    with Rewarder([Reward("exact")]) as rewarder:
        return _rate(rewarder, golds, golds)


def math_rate(questions: int) -> float:
    """Comparisons of formulas per second, after a first round that warms up everything."""
    with Rewarder([Reward("math")], limits=Limits(calls=10**9), workers=2) as rewarder:
        _rate(rewarder, *_formulas(range(2, 2 + questions)))
        return _rate(rewarder, *_formulas(range(2 + questions, 2 + 2 * questions)))


def _formulas(numbers: range) -> tuple[list[str], list[str]]:
    golds, responses = [], []
    for n in numbers:
        gold, answer = _FORMULAS[n % len(_FORMULAS)]
        for k in range(2, 2 + GROUP):
            golds.append(gold.format(n=n))
            responses.append(rf"The answer is \boxed{{{answer.format(n=n, k=k, kn=k * n)}}}.")
    return golds, responses


def _rate(rewarder: Rewarder, golds: list[str], responses: list[str]) -> float:
    prompts = [Prompt(str(number), "", columns={"answer": gold}) for number, gold in enumerate(golds)]
    start = time.perf_counter()
    scores = rewarder.score(prompts, responses, [()] * len(prompts))
    seconds = time.perf_counter() - start
    wrong = [golds[i] for i, score in enumerate(scores) if score.reward != 1.0]
    if wrong:
        raise RuntimeError(f"{len(wrong)} right answers were not accepted, for example {wrong[0]}")
    return len(golds) / seconds
