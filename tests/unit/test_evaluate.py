"""Accuracy of one agent alone, against numbers worked out by hand."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.agents.settings import Sampling
from hacrl.evaluate import Evaluation, evaluate, share
from hacrl.rewards import Score
from hacrl.types import Prompt, Rollout

PROMPTS = [Prompt("a", "?", kind="x"), Prompt("b", "?", kind="y"), Prompt("c", "?", kind="y")]


@dataclass
class FakeAgent:
    """Answers "greedy", or the number of the sample."""

    def sample(self, prompts, samples, sampling, seed):
        texts = ["greedy"] if sampling.greedy else [str(number) for number in range(samples)]
        return [
            Rollout(prompt.id, number, text, (1,), (-0.1,), "stop")
            for prompt in prompts
            for number, text in enumerate(texts)
        ]


class FakeRewarder:
    REWARDS = {  # noqa: RUF012
        "a": {"greedy": 1.0, "0": 1.0, "1": 0.0, "2": 1.0, "3": 0.0},
        "b": {"greedy": 0.0, "0": 0.0, "1": 0.0, "2": 0.0, "3": 0.0},
        "c": {"greedy": None, "0": 1.0, "1": None, "2": None, "3": 0.0},
    }

    def score(self, prompts, completions, completion_ids):
        rewards = [self.REWARDS[prompt.id][text] for prompt, text in zip(prompts, completions, strict=True)]
        return [Score(reward, None if reward is not None else "timeout") for reward in rewards]


def test_shares_by_hand():
    result = evaluate(FakeAgent(), PROMPTS, FakeRewarder(), Sampling(), 4, seed=0)
    assert result.greedy.mean == 0.5
    assert result.greedy.problems == 2  # c could not be scored
    assert {kind: value.mean for kind, value in result.greedy_by_kind.items()} == {"x": 1.0, "y": 0.0}
    assert result.mean_at_k.mean == pytest.approx((0.5 + 0.0 + 0.5) / 3)
    assert result.pass_at_k.mean == pytest.approx(2 / 3)
    assert result.unscorable == 3
    assert Evaluation.from_dict(result.as_dict()) == result


def test_without_samples_only_greedy():
    result = evaluate(FakeAgent(), PROMPTS, FakeRewarder(), Sampling(), 0, seed=0)
    assert (result.mean_at_k, result.pass_at_k, result.unscorable) == (None, None, 1)
    assert Evaluation.from_dict(result.as_dict()) == result


def test_the_interval_of_yes_or_no_answers_is_wilsons():
    found = share([1.0] * 8 + [0.0] * 2)
    assert (found.mean, found.low, found.high) == pytest.approx((0.8, 0.4901625, 0.9433178), abs=1e-6)
    assert share([1.0] * 10).low == pytest.approx(0.7224672, abs=1e-6)
    assert share([]) == share([])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_the_interval_holds_the_mean_and_shrinks_with_more_problems(values):
    found = share(values)
    assert 0 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1
    many = share(values * 4)
    assert many.high - many.low <= found.high - found.low + 1e-12


def test_steadier_values_have_a_narrower_interval():
    steady, extreme = share([0.5] * 20 + [0.6] * 20), share([0.0] * 18 + [1.0] * 22)
    assert steady.mean == pytest.approx(extreme.mean)
    assert steady.high - steady.low < extreme.high - extreme.low
