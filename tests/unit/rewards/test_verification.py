"""When a verifier fails, it is decided whose fault that is: a wrong response cannot hide behind a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hacrl.rewards import Limits, Reward, Rewarder, Score
from hacrl.rewards.scores import Batch, Outcome
from hacrl.rewards.verification import HARMLESS, Verification
from hacrl.rewards.verifiers import get_verifier
from hacrl.types import Prompt


def batch(*samples: tuple[str, Any]) -> Batch:
    prompts = [Prompt(str(number), "?", columns={"answer": gold}) for number, (_, gold) in enumerate(samples)]
    return Batch(prompts, [response for response, _ in samples], [()] * len(samples))


class Fake:
    """A verifier that times out on every text with `monster` in it, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        self.asked += [(call["response"], call["gold"]) for call in calls]
        return [
            Outcome(None, "timeout", "no reply")
            if "monster" in f"{call['response']} {call['gold']}"
            else Outcome(float(call["response"] == call["gold"]))
            for call in calls
        ]


def test_a_monstrous_response_is_wrong_and_a_monstrous_reference_makes_it_unscorable() -> None:
    call = Fake()
    verify = Verification(call, get_verifier("math"), "answer", {})
    wrong, unscorable = Score(0.0, detail="timeout: no reply"), Score(None, "timeout", "no reply")
    samples = [("3", "3"), ("4", "3"), ("monster", "3"), ("3", "monster"), ("monster", "monster")]
    assert verify(batch(*samples)) == [Score(1.0), Score(0.0), wrong, unscorable, unscorable]
    assert call.asked[5:] == [(HARMLESS, "3"), (HARMLESS, "monster")]


def test_each_reference_is_tried_once() -> None:
    call = Fake()
    verify = Verification(call, get_verifier("math"), "answer", {})
    for _ in range(3):
        verify(batch(("monster", "3"), ("monster", ["3"]), ("monster", "3")))
    assert [gold for response, gold in call.asked if response == HARMLESS] == ["3", ["3"]]


def test_code_that_dies_is_wrong_without_trying_the_tests() -> None:
    call = Fake()
    verify = Verification(call, get_verifier("python_tests"), "answer", {})
    assert [score.reward for score in verify(batch(("monster", "assert True")))] == [0.0]
    assert len(call.asked) == 1


def test_a_regular_expression_that_explodes_on_a_response() -> None:
    with Rewarder([Reward("regex")], limits=Limits(1.5), max_unscorable=1.0) as rewarder:
        samples = batch(("a" * 50, "(a+)+b"), ("aab", "(a+)+b"), ("a", "("))
        scores = rewarder.score(samples.prompts, samples.completions, samples.completion_ids)
    assert [(score.reward, score.cause) for score in scores] == [
        (0.0, None),
        (1.0, None),
        (None, "exception"),
    ]


FORGE = """
import sys

frame = sys._getframe()
while frame.f_code.co_name != "serve":
    frame = frame.f_back
lines, call = frame.f_locals["lines"], frame.f_locals["call"]
lines.buffer.write(FORGED.replace(b"ID", call["id"].encode()) + b"\\n")
lines.buffer.flush()
"""


@pytest.mark.parametrize(
    ("forged", "expected"),
    [
        (b'{"id": "ID", "value": 1' + b"0" * 400 + b"}", (None, "not_finite")),
        (b'{"id": "ID", "value": 1' + b"0" * 5000 + b"}", (0.0, None)),  # not even an integer for Python
        (b'{"id": "ID", "value": Infinity}', (None, "not_finite")),
        (b'{"id": "ID", "value": "\\u001b[31m\\ud800"}', (None, "not_a_number")),
        (b'{"id": "ID", "value": [[], {}]}', (None, "not_a_number")),
        (b'{"id": "ID", "cause": "exception", "detail": "\\u001b[31m\\ud800"}', (None, "exception")),
        (b'{"id": "ID", "cause": ["none"]}', (0.0, None)),
        (b'{"id": ["ID"], "value": 1}\n{"id": "ID", "value": 0.25}', (0.25, None)),
        (b"[" * 100_000, (0.0, None)),
        (b"\xff\xfe\x00", (0.0, None)),
        (b"7", (0.0, None)),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, bytes) else "",
)
def test_a_forged_reply_does_not_end_the_trainer(forged: bytes, expected: tuple[Any, Any]) -> None:
    with Rewarder([Reward("python_tests")], limits=Limits(20), workers=1, max_unscorable=1.0) as rewarder:
        samples = batch((f"FORGED = {forged!r}\n{FORGE}", "pass"))
        (score,) = rewarder.score(samples.prompts, samples.completions, samples.completion_ids)
    assert (score.reward, score.cause) == expected
    assert score.detail.isprintable()
