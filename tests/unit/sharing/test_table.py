from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from hacrl.sharing.table import arrange, collect, receive
from hacrl.types import Trajectory
from helpers_sharing import trajectory


def test_rewards_stand_where_source_prompt_and_sample_say() -> None:
    """Unequal numbers, a prompt only one agent responded to, a sample without a reward, numbers with gaps."""
    table = arrange(
        1,
        [
            trajectory("a", "p1", 7, reward=0.75),
            trajectory("a", "p1", 2, reward=0.25),
            trajectory("b", "p0", 0, reward=None),
            trajectory("b", "p0", 1, reward=0.5),
            trajectory("b", "p0", 2, reward=0.0),
        ],
        ["b", "a"],
        ["p0", "p1"],
    )
    expected = torch.tensor([[[0, 0.5, 0], [0, 0, 0]], [[0, 0, 0], [0.25, 0.75, 0]]], dtype=torch.float64)
    assert torch.equal(table.rewards, expected)
    assert table.mask.tolist() == [[[False, True, True], [False] * 3], [[False] * 3, [True, True, False]]]
    assert [t.sample for t in table.samples[1][1]] == [2, 7]


def test_a_step_in_which_nothing_arrived_is_a_table_too() -> None:
    table = arrange(1, [], ["a", "b"], ["p0"])
    assert table.mask.shape == (2, 1, 1)
    assert not table.mask.any()


@pytest.mark.parametrize("stray", [{"step": 2}, {"source": "x"}, {"prompt_id": "p9"}])
def test_a_stray_trajectory_is_an_error(stray: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="has no place in step 1"):
        arrange(1, [trajectory(**stray)], ["a"], ["p0"])  # type: ignore[arg-type]


def test_a_learner_receives_its_own_and_its_sources_responses() -> None:
    everything = [trajectory(name) for name in "abc"]
    received, rejected = receive(everything, "b", ["c"])
    assert [t.source for t in received] == ["b", "c"]
    assert not rejected


def test_rewards_that_are_not_confirmed_are_rejected_and_all_are_verified_in_one_batch() -> None:
    honest, liar = trajectory("b", sample=0, reward=1.0), trajectory("b", sample=1, reward=1.0)
    crashing, without_reward = trajectory("b", sample=2, reward=0.0), trajectory("b", sample=3, reward=None)
    own = trajectory("a", reward=1.0)
    scores = {0: 1.0, 1: 0.0, 2: None}
    asked = []

    def reverify(responses: Sequence[Trajectory]) -> list[float | None]:
        asked.append(list(responses))
        return [scores[response.sample] for response in responses]

    received, rejected = receive([own, honest, liar, crashing, without_reward], "a", ["b"], reverify)
    assert received == (own, honest, without_reward)
    assert rejected == {"reward_differs": 1, "reward_unconfirmed": 1}
    assert asked == [[honest, liar, crashing]]
    assert receive([own, without_reward], "a", ["b"], reverify)[0] == (own, without_reward)
    assert len(asked) == 1  # nothing to confirm, nothing to verify


def test_trajectories_are_sorted_whatever_order_they_arrive_in() -> None:
    step = [trajectory("a", "p0", 9), trajectory("a", "p0", 10), trajectory("a", "p1"), trajectory("b", "p2")]
    assert collect(reversed(step)) == (tuple(step), {})


@pytest.mark.parametrize("logp", [math.nan, math.inf, -math.inf])
def test_log_probs_that_are_not_finite_are_rejected_without_the_others(logp: float) -> None:
    good = [trajectory(sample=n) for n in range(2)]
    bad = trajectory(sample=2, token_logps=(-1.0, logp, -1.0))
    assert collect([good[0], bad, good[1]]) == (tuple(good), {"non_finite_logp": 1})
