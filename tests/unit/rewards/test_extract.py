from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.rewards.extract import final_answer, gold_answer, last_boxed, marked_answer

balanced = st.recursive(
    st.text("ab1 ,+^_", max_size=5),
    lambda inner: st.builds(lambda a, b, c: f"{a}{{{b}}}{c}", inner, inner, inner),
    max_leaves=6,
)


@given(balanced, balanced, balanced)
def test_the_last_box_is_found_whatever_braces_are_around(before: str, inside: str, after: str) -> None:
    text = rf"\boxed{{first}} {before} \boxed{{{inside}}} {after}"
    assert last_boxed(text) == inside.strip()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{8}", "8"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{3} and then \boxed{\frac{1}", "3"),  # cut at the token limit
        (r"} } \boxed{4} {", "4"),
        (r"\boxed{", None),
        ("no box", None),
        (r"\boxed{" * 20_000, None),
    ],
)
def test_boxes(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It is 3.\n#### 1,234\n", "1,234"),
        ("#### 1\n#### 2", "2"),
        (r"#### 1 but \boxed{2}", "2"),
        ("The answer is 42.", "42."),
        ("Final Answer: The final answer is $\\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        ("**Answer:** \\(x = 3\\)", "x = 3"),
        ("So we add.\n\n17\n", "17"),
        ("", ""),
    ],
)
def test_final_answers(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_a_worked_solution_as_reference() -> None:
    assert gold_answer("16 - 3 = <<16-3=13>>13\n#### 13") == "13"
    assert gold_answer(r"Thus $\boxed{p - q}$.") == "p - q"
    assert gold_answer(7) == "7"
    assert gold_answer(["$1$", "$2$"]) == "$1$, $2$"
    assert marked_answer("The answer is 7.") is None
