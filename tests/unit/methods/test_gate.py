"""What a learner takes from its peers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hacrl.methods.common import distinct
from hacrl.methods.commons import Commons, leads
from helpers_methods import texts, view

RIGHT, WRONG = ("7", 1.0), ("9", 0.0)
OTHER_STYLE = ("seven", 1.0)


def accepted(method: Commons, seen) -> list[tuple[str, str, str]]:
    return texts(seen, method.accepted(seen, distinct(seen.table, seen.verified)))


def test_a_lead_is_counted_by_kind_and_shrinks_with_few_prompts():
    answers = {
        "a": {"p0": [RIGHT, WRONG, WRONG, WRONG], "p1": [RIGHT] * 4},
        "b": {"p0": [RIGHT] * 4, "p1": [WRONG] * 4},
    }
    # One prompt of each kind: a third of the difference is believed, 1 / (1 + 2).
    by_kind = leads(view("a", answers=answers, kinds=["sort", "add"]))
    expected = torch.tensor([[0, 0], [0.75 / 3, -1.0 / 3]], dtype=torch.float64)
    torch.testing.assert_close(by_kind, expected)
    # Both of one kind: .5 against .625, and half of it is believed.
    together = leads(view("a", answers=answers))
    torch.testing.assert_close(together[1], torch.full((2,), -0.125 / 2, dtype=torch.float64))


def test_nothing_is_believed_of_kinds_that_one_of_the_two_never_tried():
    answers = {"a": {"p0": [WRONG] * 4}, "b": {"p1": [RIGHT] * 4}}
    assert leads(view("a", answers=answers, kinds=["sort", "add"])).abs().max() == 0


def test_another_style_is_refused_by_a_learner_that_has_one_of_its_own():
    answers = {"a": {"p0": [RIGHT, RIGHT, WRONG, RIGHT]}, "b": {"p1": [OTHER_STYLE] * 4}}
    strange = view("a", answers=answers, likely={"7": -0.1, "seven": -0.5})
    assert accepted(Commons(), strange) == [("a", "p0", "7")]
    usual = view("a", answers=answers, likely={"7": -0.1, "seven": -0.05})
    assert accepted(Commons(), usual) == [("a", "p0", "7"), ("b", "p1", "seven")]


def test_a_clearly_better_peer_is_believed_whatever_its_style():
    answers = {"a": {"p0": [RIGHT, WRONG, WRONG, WRONG]}, "b": {"p1": [OTHER_STYLE] * 4}}
    seen = view("a", answers=answers, likely={"7": -0.1, "seven": -5.0})
    lead = 0.75 / 3
    assert accepted(Commons(margin=lead + 0.01), seen) == [("a", "p0", "7")]
    assert accepted(Commons(margin=lead - 0.01), seen) == [("a", "p0", "7"), ("b", "p1", "seven")]


def test_a_learner_without_a_right_answer_recognises_nothing():
    answers = {"a": {"p0": [WRONG] * 4}, "b": {"p1": [RIGHT] * 4}}
    assert accepted(Commons(margin=1.0), view("a", answers=answers)) == []
    assert accepted(Commons(margin=0.3), view("a", answers=answers)) == [("b", "p1", "7")]


@pytest.mark.parametrize("familiar", [0.0, 0.5, 1.0])
def test_the_bound_is_a_quantile_of_the_learners_own_right_answers(familiar: float):
    own = [("1", 1.0), ("2", 1.0), ("3", 1.0)]
    likely = {"1": -3.0, "2": -2.0, "3": -1.0, "x": -2.5, "y": -1.5, "z": -0.5}
    answers = {"a": {"p0": own}, "b": {"p1": [("x", 1.0), ("y", 1.0), ("z", 1.0)]}}
    taken = accepted(Commons(margin=1.0, familiar=familiar), view("a", answers=answers, likely=likely))
    assert [text for source, _, text in taken if source == "b"] == {
        0.0: ["x", "y", "z"],
        0.5: ["y", "z"],
        1.0: ["z"],
    }[familiar]


@given(
    rewards=st.lists(st.sampled_from([RIGHT, WRONG, OTHER_STYLE]), min_size=8, max_size=8),
    logp=st.floats(-20, 0),
    margin=st.floats(0, 1),
    familiar=st.floats(0, 1),
)
def test_own_right_answers_always_pass_and_wrong_ones_never(rewards, logp, margin, familiar):
    answers = {"a": {"p0": rewards[:4]}, "b": {"p1": rewards[4:]}}
    seen = view("a", answers=answers, likely={"seven": logp})
    pool = distinct(seen.table, seen.verified)
    taken = Commons(margin=margin, familiar=familiar).accepted(seen, pool)
    assert not (taken & ~pool).any()
    assert taken[0].equal(pool[0])
