"""How many responses per second the verifiers check."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.command import JsonFile, Markdown, command, show
from hacrl.analysis.tables import TextTable
from hacrl.rewards import Limits, Reward, Rewarder
from hacrl.types import Prompt

EXACT_RESPONSES = 50_000
MATH_RESPONSES = 320
GROUP = 8
"""Responses to one question in a training step, all written differently; its gold answer is read once."""
_FORMULAS = (
    (r"\frac{{\sqrt{{{n}}}}}{{{n}}}", r"\frac{{{k}}}{{{k}\sqrt{{{n}}}}}"),
    (r"{n}x^2 + {n}", r"\frac{{{kn}(x^2 + 1)}}{{{k}}}"),
    (r"\frac{{{n}\pi}}{{7}}", r"{kn} \cdot \frac{{\pi}}{{7 \cdot {k}}}"),
    (r"{n} + 2i", r"\frac{{{kn} + 2 \cdot {k}i}}{{{k}}}"),
)
"""Gold answer and response, equal only for an algebra system: every comparison goes through math-verify."""


@dataclass(frozen=True)
class Rates:
    """Responses checked per second."""

    exact: float
    math: float
    """With a new gold answer for every response, ..."""
    math_groups: float
    """... and with `GROUP` responses to each."""


def verifiers(markdown: Markdown = False, json_file: JsonFile = None) -> None:
    """Count the responses that verifiers check per second: exact matches, and formulas with math-verify.

    Exact matches are checked in this process, formulas by two workers that have warmed up. All responses are
    right, but the formulas are written so that only an algebra system sees it.
    """
    rates = Rates(
        exact=exact_rate(EXACT_RESPONSES),
        math=math_rate(MATH_RESPONSES, group=1),
        math_groups=math_rate(MATH_RESPONSES, group=GROUP),
    )
    show([rate_table(rates)], rates, markdown, json_file)


def rate_table(rates: Rates) -> TextTable:
    """Every rate beside its target."""
    figures = (
        ("exact matches", rates.exact, 20_000),
        ("math-verify comparisons, warm, every gold answer new", rates.math, 200),
        (f"math-verify comparisons, warm, {GROUP} responses to each", rates.math_groups, 200),
    )
    rows = [(name, f"{rate:,.0f}", f"{target:,}") for name, rate, target in figures]
    return TextTable("Verifiers", ("", "per second", "target on two cores"), rows)


def exact_rate(count: int) -> float:
    """Exact matches per second."""
    golds = [str(number) for number in range(count)]
    with Rewarder([Reward("exact")]) as rewarder:
        return _rate(rewarder, golds, golds)


def math_rate(responses: int, group: int) -> float:
    """Comparisons of formulas per second, `group` responses to each, after a round of warming up."""
    questions = responses // group
    with Rewarder([Reward("math")], limits=Limits(calls=10**9), workers=2) as rewarder:
        _rate(rewarder, *_formulas(range(2, 2 + questions), group))
        return _rate(rewarder, *_formulas(range(2 + questions, 2 + 2 * questions), group))


def _formulas(numbers: range, group: int) -> tuple[list[str], list[str]]:
    golds, responses = [], []
    for n in numbers:
        gold, formula = _FORMULAS[n % len(_FORMULAS)]
        for k in range(2, 2 + group):
            golds.append(gold.format(n=n))
            responses.append(rf"The answer is \boxed{{{formula.format(n=n, k=k, kn=k * n)}}}.")
    return golds, responses


def _rate(rewarder: Rewarder, golds: list[str], responses: list[str]) -> float:
    prompts = [Prompt(str(number), "", columns={"answer": gold}) for number, gold in enumerate(golds)]
    start = time.perf_counter()
    scores = rewarder.score(prompts, responses, [()] * len(prompts))
    seconds = time.perf_counter() - start
    wrong = [golds[i] for i, score in enumerate(scores) if score.reward != 1.0]
    if wrong:
        raise RuntimeError(f"{len(wrong)} right responses were not accepted, for example {wrong[0]}")
    return len(golds) / seconds


app = command(verifiers)

if __name__ == "__main__":
    app()
