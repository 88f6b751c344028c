"""How many answers per second the verifiers check."""

from __future__ import annotations

import time

from hacrl.bench.tables import Table
from hacrl.rewards import Limits, Reward, Rewarder
from hacrl.types import Prompt

EXACT_ANSWERS = 50_000
MATH_ANSWERS = 320
GROUP = 8
"""Answers to one question in a training step, each written differently: its reference is read only once."""
_FORMULAS = (
    (r"\frac{{\sqrt{{{n}}}}}{{{n}}}", r"\frac{{{k}}}{{{k}\sqrt{{{n}}}}}"),
    (r"{n}x^2 + {n}", r"\frac{{{kn}(x^2 + 1)}}{{{k}}}"),
    (r"\frac{{{n}\pi}}{{7}}", r"{kn} \cdot \frac{{\pi}}{{7 \cdot {k}}}"),
    (r"{n} + 2i", r"\frac{{{kn} + 2 \cdot {k}i}}{{{k}}}"),
)
"""Reference and answer, equal only for an algebra system: every comparison goes through math-verify."""


def run() -> Table:
    """Time exact matches in this process, and warm math-verify comparisons in a pool of two workers."""
    figures = (
        ("exact matches", exact_rate(EXACT_ANSWERS), 20_000),
        ("math-verify comparisons, warm, every reference new", math_rate(MATH_ANSWERS, group=1), 200),
        (
            f"math-verify comparisons, warm, {GROUP} answers to each",
            math_rate(MATH_ANSWERS, group=GROUP),
            200,
        ),
    )
    rows = [(name, f"{rate:,.0f}", f"{target:,}") for name, rate, target in figures]
    return Table("Verifiers", ("", "per second", "target on two cores"), rows)


def exact_rate(count: int) -> float:
    """Exact matches per second."""
    golds = [str(number) for number in range(count)]
    with Rewarder([Reward("exact")]) as rewarder:
        return _rate(rewarder, golds, golds)


def math_rate(answers: int, group: int) -> float:
    """Comparisons of formulas per second, `group` answers to each, after a round that warms everything up."""
    questions = answers // group
    with Rewarder([Reward("math")], limits=Limits(calls=10**9), workers=2) as rewarder:
        _rate(rewarder, *_formulas(range(2, 2 + questions), group))
        return _rate(rewarder, *_formulas(range(2 + questions, 2 + 2 * questions), group))


def _formulas(numbers: range, group: int) -> tuple[list[str], list[str]]:
    golds, responses = [], []
    for n in numbers:
        gold, answer = _FORMULAS[n % len(_FORMULAS)]
        for k in range(2, 2 + group):
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
