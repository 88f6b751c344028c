"""Verifiers that run in the trainer, without a deadline: their work grows no faster than the response."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable

import pytest

from hacrl.rewards.answers import boxed, choice, exact, numeric
from hacrl.rewards.notation import MAX_FONTS, MAX_LENGTH, tidy

MARKS = [r"\text{", r"\boxed{", r"\(", r"\)", r"\[", r"\$", r"\frac", r"\mbox{and}", "$$", "####", "```"]
WORDS = ["answer", " is ", "and", " cm", " cm^2"]
PIECES = [*MARKS, *WORDS, *"{}$:^1xAe,.-%/()'*_+<√π\\ \t\n"]


def repeated(before: str, piece: str, after: str) -> Callable[[int], str]:
    return lambda length: before + piece * (length // len(piece)) + after


KNOWN = {
    "nested fonts": lambda length: r"\boxed{" + r"\text{" * (length // 7) + "}" * (length // 7 + 1),
    "fonts in a row": repeated(r"\boxed{", r"\text{a}", "}"),
    "dollars": repeated(r"\boxed{", "$", "}"),
    "spaces after a power": repeated(r"\boxed{1^", " ", "x}"),
    "powers of units": repeated(r"\boxed{1", " cm^2", " x}"),
    "open boxes": repeated("", r"\boxed{", ""),
    "open formulas": repeated("", r"\(", "."),
    "answers": repeated("", "the answer is ", ""),
}
SHORT, LONG = 3_000, 48_000
VERIFIERS = {"boxed": boxed, "numeric": numeric, "choice": choice, "exact": exact}
GOLD = {"boxed": "3", "numeric": "3", "choice": "B", "exact": "3"}


def cpu_seconds(call: Callable[[], object], repeats: int) -> float:
    """CPU time of this thread alone, the least of several: other processes do not count."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times)


def growth(make: Callable[[int], str], verifier: str) -> float:
    """How many times as much CPU time a text of 16 times the length takes: 16 if linear, 256 if quadratic."""
    verify, gold = VERIFIERS[verifier], GOLD[verifier]
    ratio = float("inf")
    for repeats in (2, 5, 20):  # measure again only what looks bad
        short, long = (
            cpu_seconds(functools.partial(verify, make(length), gold), repeats) for length in (SHORT, LONG)
        )
        ratio = min(ratio, long / max(short, 2e-5))
        if ratio < 40:
            break
    return ratio


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("name", KNOWN)
def test_known_bombs_take_linear_time(name: str, verifier: str) -> None:
    assert growth(KNOWN[name], verifier) < 64


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_random_repetitions_take_linear_time(verifier: str) -> None:
    choose = random.Random(verifier)
    for _ in range(60):
        parts = ["".join(choose.choices(PIECES, k=choose.randint(least, 3))) for least in (0, 1, 0)]
        if choose.random() < 0.5:
            parts[0], parts[2] = r"\boxed{" + parts[0], parts[2] + "}"
        assert growth(repeated(*parts), verifier) < 64, parts


def test_the_work_on_an_answer_is_bounded() -> None:
    nested = r"\text{" * (MAX_FONTS + 5) + "a" + "}" * (MAX_FONTS + 5)
    assert tidy(nested).count(r"\text{") == 5
    long = "1" + r"\text{ cm}" * MAX_LENGTH
    assert tidy(long) == long
    assert tidy("1" + " cm" * 8) == tidy("1" + r"\text{ cm}" * MAX_FONTS) == "1"
