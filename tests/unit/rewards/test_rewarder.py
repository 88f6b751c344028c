"""Reward functions as in TRL, sums of several, and what happens when they fail."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hacrl.rewards import Limits, Reward, Rewarder, Score, TooManyUnscorable
from hacrl.rewards.rewarder import combine
from hacrl.types import Prompt

CHAT = Prompt("chat", ({"role": "user", "content": "hi"},), columns={"answer": "4", "level": 2})
TEXT = Prompt("text", "2 + 2 =", columns={"answer": "4", "prompt": "taken"})


def score(
    rewards: list[Reward], prompts: list[Prompt], completions: list[str], **options: Any
) -> list[Score]:
    with Rewarder(rewards, **options) as rewarder:
        return rewarder.score(prompts, completions, [(1, 2)] * len(prompts))


def test_a_reward_function_gets_what_trl_would_give_it() -> None:
    seen: dict[str, Any] = {}

    def reward(prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> list[float]:
        seen.update(prompts=prompts, completions=completions, completion_ids=completion_ids, **columns)
        return [1.0, 2.0]

    scores = score([Reward(reward, weight=0.5)], [CHAT, TEXT], ["four", "4"])
    assert [each.reward for each in scores] == [0.5, 1.0]
    assert seen == {
        "prompts": [[{"role": "user", "content": "hi"}], "2 + 2 ="],
        "completions": [[{"role": "assistant", "content": "four"}], "4"],
        "completion_ids": [[1, 2], [1, 2]],
        "answer": ["4", "4"],
        "level": [2, None],
    }


class Lengths:
    async def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        return [float(len(text)) for text in completions]


async def scaled(completions: list[str], factor: float, **columns: Any) -> list[float]:
    return [factor * len(text) for text in completions]


def test_async_functions_here_and_in_the_pool() -> None:
    rewards = [
        Reward(Lengths()),
        Reward(functools.partial(scaled, factor=10.0)),
        Reward("helpers_hostile:slowly", weight=100.0),
    ]
    scores = score(rewards, [TEXT, TEXT], ["a", "bcd"], limits=Limits(30))
    assert [each.reward for each in scores] == [111.0, 333.0]


def test_an_async_function_inside_a_running_loop() -> None:
    import asyncio

    async def notebook() -> list[Score]:
        return score([Reward(Lengths())], [TEXT], ["abc"])

    assert asyncio.run(notebook()) == [Score(3.0)]


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(-10, 10, width=32)), st.floats(-4, 4, width=32)),
        min_size=1,
        max_size=5,
    )
)
def test_several_rewards_add_up_as_in_trl(terms: list[tuple[float | None, float]]) -> None:
    rewards = torch.tensor(
        [float("nan") if reward is None else reward for reward, _ in terms], dtype=torch.float64
    )
    weights = torch.tensor([weight for _, weight in terms], dtype=torch.float64)
    scores = [Score(None, "none") if reward is None else Score(reward) for reward, _ in terms]
    total = combine(scores, [weight for _, weight in terms]).reward
    if rewards.isnan().all():
        assert total is None
    else:
        assert total == pytest.approx((rewards * weights).nansum().item(), abs=1e-9)


def test_the_sum_is_unknown_if_a_verifier_failed() -> None:
    assert combine([Score(0.1), Score(None, "timeout")], [1.0, 1.0]) == Score(None, "timeout")
    assert combine([Score(None, "none"), Score(None, "timeout")], [1.0, 1.0]) == Score(None, "timeout")


def test_one_bad_sample_of_a_function_in_this_process() -> None:
    def picky(completions: list[str], **columns: Any) -> list[float]:
        return [1 / len(text) for text in completions]

    scores = score([Reward(picky)], [TEXT] * 3, ["ab", "", "abcd"])
    assert [(each.reward, each.cause) for each in scores] == [(0.5, None), (None, "exception"), (0.25, None)]
    assert scores[1].detail == "ZeroDivisionError: division by zero"


def test_functions_that_return_no_list() -> None:
    scores = score([Reward(lambda **_: 3)], [TEXT] * 2, ["a", "b"], max_unscorable=1.0)
    assert [each.cause for each in scores] == ["wrong_length"] * 2


def test_numbers_of_other_libraries_are_numbers() -> None:
    scores = score([Reward(lambda **_: torch.tensor([0.25, 1.0]))], [TEXT] * 2, ["a", "b"])
    assert [each.reward for each in scores] == [0.25, 1.0]


def test_too_many_unscorable_responses_stop_the_run() -> None:
    def broken(completions: list[str], **columns: Any) -> list[float | None]:
        if completions == ["bad"]:
            raise RuntimeError("no such judge")
        return [None if text == "bad" else 1.0 for text in completions]

    half = score([Reward(broken)], [TEXT] * 2, ["good", "none"], max_unscorable=0.5)
    assert [each.reward for each in half] == [1.0, 1.0]
    with pytest.raises(TooManyUnscorable, match=r"2 of 3 .*none 2.*max_unscorable=0\.5"):
        score([Reward(broken)], [TEXT] * 3, ["good", "bad", "bad"])
    with pytest.raises(TooManyUnscorable, match="For example: RuntimeError: no such judge"):
        score([Reward(broken)], [TEXT], ["bad"])


def test_causes_are_counted_over_batches() -> None:
    with Rewarder([Reward("numeric")], max_unscorable=1.0) as rewarder:
        for _ in range(2):
            rewarder.score([TEXT, Prompt("p", "?", columns={"answer": "four"})], ["4", "4"], [(), ()])
    assert rewarder.unscorable == {"exception": 2}


def test_verifiers_take_settings_and_columns() -> None:
    prompt = Prompt("p", "?", columns={"target": 100})
    reward = Reward("numeric", gold="target", settings={"tolerance": 0.1})
    assert [each.reward for each in score([reward], [prompt] * 2, ["105", "115"])] == [1.0, 0.0]


def test_user_errors_are_reported() -> None:
    with pytest.raises(ValueError, match=r"prompt 'text' has no column 'gold'.*'answer'"):
        score([Reward("exact", gold="gold")], [TEXT], ["4"])
    with pytest.raises(ValueError, match=r"different lengths: \(2, 1, 2\)"):
        score([Reward("exact")], [TEXT, TEXT], ["4"])
    with pytest.raises(ValueError, match="at least one"):
        Rewarder([])
    with pytest.raises(ValueError, match="no verifier 'exct'"):
        Rewarder([Reward("exct")])


def test_an_empty_batch() -> None:
    assert score([Reward("exact")], [], []) == []
