"""Any text as a response, and any value as a reference: a score or a cause, never an exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.rewards import Limits, Reward, Rewarder
from hacrl.rewards.verifiers import VERIFIERS
from hacrl.types import Prompt

IN_PROCESS = [name for name, verifier in VERIFIERS.items() if verifier.in_process]
GOLDS = {"exact": "3", "boxed": r"\frac{1}{2}", "numeric": "3", "choice": "B"}

anything = st.text(st.characters(categories=None), max_size=40)  # also surrogates and control characters
MARKS = [r"\boxed{", "}", "{", "####", "The answer is ", "$", r"\(", r"\)", r"\text{", r"\frac", "^", "\\"]
STRANGE = ["1e999999999", "9" * 5000, "1,000", "/0", "-.", "٣", "²", "½", "\0", "\n", "\ud800", "\u202e"]
marks = st.sampled_from(MARKS + STRANGE)
hostile = st.lists(st.one_of(marks, anything), max_size=12).map("".join)
values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), hostile, st.binary(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(hostile, st.integers()), inner)
    ),
    max_leaves=5,
)


def score(verifier: str, response: str, gold: Any) -> tuple[float | None, str | None]:
    with Rewarder([Reward(verifier)], max_unscorable=1.0) as rewarder:
        (result,) = rewarder.score([Prompt("p", "?", columns={"answer": gold})], [response], [()])
    assert result.detail.isprintable()
    return result.reward, result.cause


@pytest.mark.parametrize("verifier", IN_PROCESS)
@settings(max_examples=150)
@given(hostile)
def test_any_response_is_right_or_wrong(verifier: str, response: str) -> None:
    assert score(verifier, response, GOLDS[verifier]) in [(0.0, None), (1.0, None)]


@pytest.mark.parametrize("verifier", IN_PROCESS)
@settings(max_examples=150)
@given(hostile, values)
def test_any_reference_gives_a_score_or_a_cause(verifier: str, response: str, gold: Any) -> None:
    assert score(verifier, response, gold) in [(0.0, None), (1.0, None), (None, "exception")]


def test_the_math_verifier_scores_strange_texts() -> None:
    pytest.importorskip("math_verify")
    texts = [
        *(
            "\ud800",
            "\0",
            "\u202e1",
            "9" * 100_000,
            "{" * 50_000,
            r"\text{" * 300 + "}" * 300,
            r"\frac" * 300,
        ),
        *("(" * 900 + ")" * 900, "1" + "+1" * 200, r"\begin{pmatrix}" * 20, "1,2," * 400, r"\pm " * 400),
        *(r"\cup " * 50, "=" * 200, "x = " * 50, "∞" * 50, "%" * 1900, r"\int" * 20),
    ]
    prompts = [Prompt(str(number), "?", columns={"answer": "x + 1"}) for number in range(len(texts) + 1)]
    responses = [*(rf"\boxed{{{text}}}" for text in texts), r"\boxed{1 + x}"]
    with Rewarder([Reward("math")], limits=Limits(3), max_unscorable=0.0) as rewarder:
        scores = rewarder.score(prompts, responses, [()] * len(responses))
    assert [each.reward for each in scores] == [0.0] * len(texts) + [1.0]
