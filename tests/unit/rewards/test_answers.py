from __future__ import annotations

import pytest

from hacrl.rewards.answers import boxed, choice, exact, numeric, regex
from hacrl.rewards.verifiers import VERIFIERS, get_verifier


@pytest.mark.parametrize(
    ("response", "gold", "reward"), [(" 1 2 3\n", "1 2 3", 1.0), ("1 2", "1 2 3", 0.0), ("7", 7, 1.0)]
)
def test_exact(response: str, gold: object, reward: float) -> None:
    assert exact(response, gold) == reward


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        (r"so \boxed{\dfrac{1}{2}}", r"\frac{1}{2}", 1.0),
        (r"so \boxed{0.5}", r"\frac{1}{2}", 0.0),
        ("so 0.5", "0.5", 0.0),
        (r"\boxed{1} no, \boxed{2}", "1", 0.0),
    ],
)
def test_boxed(response: str, gold: str, reward: float) -> None:
    assert boxed(response, gold) == reward


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        ("#### 70,000", "work work\n#### 70000", 1.0),
        (r"\boxed{\$70,000}", 70000, 1.0),
        ("She makes $18 every day.", "18", 1.0),
        ("The answer is 17 eggs.", "18", 0.0),
        ("I give up.", "18", 0.0),
        (r"\boxed{\frac{1}{3}}", "0.3333333333", 1.0),
        (r"\boxed{0.33}", r"\frac13", 0.0),
        ("-5", "5", 0.0),
        (r"\boxed{20\%}", "20", 1.0),
        ("9" * 6000, "18", 0.0),
    ],
)
def test_numeric(response: str, gold: object, reward: float) -> None:
    assert numeric(response, gold) == reward


def test_numeric_tolerance_is_relative() -> None:
    assert numeric("1010", 1000, tolerance=0.02) == 1.0
    assert numeric("1010", 1000, tolerance=0.005) == 0.0


@pytest.mark.parametrize(
    ("response", "gold", "reward"),
    [
        ("The answer is (B).", "B", 1.0),
        (r"\boxed{\text{(B)}}", "(B)", 1.0),
        ("B. Paris is a city", "B", 1.0),
        ("Answer: c", "C", 1.0),
        ("I think it is a bad question.\nAnswer: D) none", "D", 1.0),
        ("The answer is (A).", "B", 0.0),
        ("Nobody knows", "B", 0.0),
    ],
)
def test_choice(response: str, gold: str, reward: float) -> None:
    assert choice(response, gold) == reward


def test_a_reference_of_the_wrong_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="no number"):
        numeric("3", "three")
    with pytest.raises(ValueError, match="not a letter"):
        choice("B", "Paris")


def test_regex() -> None:
    assert regex("<think>\nhm\n</think> 4", r"<think>.*</think>\s*\d+$") == 1.0
    assert regex("4", r"<think>.*</think>") == 0.0


def test_the_error_for_an_unknown_verifier_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'maths'.*exact, boxed, numeric.*python_tests"):
        get_verifier("maths")


@pytest.mark.parametrize("name", VERIFIERS)
def test_only_safe_verifiers_run_in_the_trainer(name: str) -> None:
    verifier = get_verifier(name)
    assert verifier.in_process == (name in {"exact", "boxed", "numeric", "choice"})
    assert verifier.runs_response == (name == "python_tests")
