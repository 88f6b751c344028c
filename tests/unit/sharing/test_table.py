from __future__ import annotations

import pytest
import torch

from hacrl.sharing.table import arrange, hear
from helpers_sharing import trajectory


def test_rewards_stand_where_source_prompt_and_sample_say() -> None:
    """Unequal numbers, a prompt only one agent answered, an unscored sample, numbers with gaps."""
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


def test_a_learner_hears_itself_and_its_sources() -> None:
    everything = [trajectory(name) for name in "abc"]
    heard, mistrusted = hear(everything, "b", ["c"])
    assert [t.source for t in heard] == ["b", "c"]
    assert not mistrusted


def test_rewards_that_are_not_confirmed_are_not_believed() -> None:
    honest, liar = trajectory("b", sample=0, reward=1.0), trajectory("b", sample=1, reward=1.0)
    crashing, unscored = trajectory("b", sample=2, reward=0.0), trajectory("b", sample=3, reward=None)
    own = trajectory("a", reward=1.0)
    answers = {0: 1.0, 1: 0.0, 2: None}
    asked = []

    def reverify(response: object) -> float | None:
        asked.append(response)
        return answers[response.sample]  # type: ignore[attr-defined]

    heard, mistrusted = hear([own, honest, liar, crashing, unscored], "a", ["b"], reverify)
    assert heard == (own, honest, unscored)
    assert mistrusted == {"reward_differs": 1, "reward_unconfirmed": 1}
    assert asked == [honest, liar, crashing]
