"""A function fails in the same way in the trainer's process and in the pool, and never ends the trainer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import helpers_hostile
from hacrl.rewards import Limits, Reward, Rewarder, Score
from hacrl.rewards.calls import call_here, plain
from hacrl.types import Prompt


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, Rewarder]]:
    with (
        Rewarder([Reward("helpers_hostile:rewards")], limits=Limits(60), max_unscorable=1.0) as rewards,
        Rewarder([Reward("helpers_hostile:results")], limits=Limits(60), max_unscorable=1.0) as results,
    ):
        yield {"rewards": rewards, "results": results}


def score(rewarder: Rewarder, completions: list[str]) -> list[Score]:
    prompts = [Prompt(str(number), "?") for number in range(len(completions))]
    return rewarder.score(prompts, completions, [()] * len(completions))


def score_here(function: Any, completions: list[str]) -> list[Score]:
    with Rewarder([Reward(function)], max_unscorable=1.0) as rewarder:
        return score(rewarder, completions)


CAUSES = {
    "runs out of memory": "memory",
    "float raises": "not_a_number",
    "bytes": "not_a_number",
    "a complex number": "not_a_number",
    "a nested list": "not_a_number",
    "a dictionary": "not_a_number",
    "a class": "not_a_number",
    "a signalling NaN": "not_a_number",
}


@pytest.mark.parametrize("attack", [*helpers_hostile.ERRORS, *helpers_hostile.VALUES])
def test_a_hostile_reward_is_a_cause_in_both_places(pools: dict[str, Rewarder], attack: str) -> None:
    batch = ["right", attack, "wrong"]
    scores = score_here(helpers_hostile.rewards, batch)
    assert [each.reward for each in scores] == [1.0, None, 0.5]
    assert scores[1].cause == CAUSES.get(attack, "exception")
    assert scores[1].detail.isprintable()
    assert score(pools["rewards"], batch) == scores


@pytest.mark.parametrize("result", helpers_hostile.RESULTS)
def test_a_hostile_result_is_a_cause_in_both_places(pools: dict[str, Rewarder], result: str) -> None:
    scores = score_here(helpers_hostile.results, [result] * 2)
    expected = {
        "a generator": [(1.0, None), (1.0, None)],
        "a range": [(0.0, None), (1.0, None)],
        "a list that contains itself": [(1.0, None), (None, "not_a_number")],
    }
    lost = "exception" if "raises" in result else "wrong_length"
    assert [(each.reward, each.cause) for each in scores] == expected.get(result, [(None, lost)] * 2)
    assert score(pools["results"], [result] * 2) == scores


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="only the main thread gets signals"
)
def test_ctrl_c_ends_the_program_though_a_raised_interrupt_does_not() -> None:
    def function(how: str) -> float:
        if how == "raise":
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
        return 1.0

    (outcome,) = call_here(function, [{"how": "raise"}])
    assert outcome.cause == "exception"
    with pytest.raises(KeyboardInterrupt):
        call_here(function, [{"how": "press"}])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_plain_numbers() -> None:
    assert plain(torch.tensor(0.5), most=5) == 0.5
    assert plain(torch.tensor([0.5, 1.0]), most=5) == [0.5, 1.0]
    assert plain(torch.tensor([[0.5], [1.0]]), most=5) == [0.5, 1.0]
    assert plain([True, None, "x"], most=5) == [1.0, None, "str"]
    assert plain(iter(int, 1), most=2) == [0.0, 0.0]
