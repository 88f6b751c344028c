"""What a learner takes from its peers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.methods.common import distinct
from hacrl.methods.commons import Commons
from helpers_methods import texts, view

RIGHT, WRONG = ("7", 1.0), ("9", 0.0)
OTHER_STYLE = ("seven", 1.0)
STYLES = {"a": {"p0": [RIGHT, RIGHT, WRONG, RIGHT]}, "b": {"p1": [OTHER_STYLE] * 4}}
OWN, BOTH = [("a", "p0", "7")], [("a", "p0", "7"), ("b", "p1", "seven")]


def accepted(method: Commons, seen) -> list[tuple[str, str, str]]:
    return texts(seen, method.accepted(seen, distinct(seen.table, seen.verified)))


def test_another_style_is_refused_by_a_learner_that_has_one_of_its_own():
    strange = view("a", answers=STYLES, likely={"7": -0.1, "seven": -0.5})
    assert accepted(Commons(), strange) == OWN
    usual = view("a", answers=STYLES, likely={"7": -0.1, "seven": -0.05})
    assert accepted(Commons(), usual) == BOTH


@pytest.mark.parametrize(
    ("own", "peer", "taken"),
    [
        (0.1, 0.9, BOTH),  # it would probably fail, and the peer is clearly better
        (0.15, 0.9, BOTH),  # .85 ** 4 = .522
        (0.17, 0.9, OWN),  # .83 ** 4 = .475: one of its four responses is probably right
        (0.1, 0.34, BOTH),  # a lead of .24 with a deviation of sqrt(.02) = .141: probability .955
        (0.1, 0.32, OWN),  # .22: probability .940
    ],
)
def test_what_the_learner_needs_is_taken_whatever_its_style(own: float, peer: float, taken: list):
    seen = view("a", answers=STYLES, likely={"7": -0.1, "seven": -5.0}, chances={"a": own, "b": peer})
    assert accepted(Commons(), seen) == taken


def test_metrics_say_how_many_passed_and_why():
    """Of the two distinct right texts the usual one is familiar; a helpless learner needs both."""
    answers = {"a": {"p0": [RIGHT] * 4}, "b": {"p1": [RIGHT, OTHER_STYLE, OTHER_STYLE, WRONG]}}

    def measured(own: float) -> dict[str, float]:
        seen = view("a", answers=answers, likely={"7": -0.1, "seven": -5.0}, chances={"a": own, "b": 0.9})
        return Commons().metrics(seen, Commons().loss_terms(seen))

    assert measured(0.5) == {"gate/accepted": 0.5, "gate/needed": 0.0, "gate/offered": 2}
    assert measured(0.1) == {"gate/accepted": 1.0, "gate/needed": 1.0, "gate/offered": 2}


def test_more_confidence_asks_for_a_larger_lead():
    seen = view("a", answers=STYLES, likely={"7": -0.1, "seven": -5.0}, chances={"a": 0.1, "b": 0.34})
    assert accepted(Commons(confidence=0.95), seen) == BOTH
    assert accepted(Commons(confidence=0.96), seen) == OWN


def test_where_the_learner_is_good_it_can_refuse_all_its_peers_responses():
    seen = view("a", answers=STYLES, chances={"a": 0.6, "b": 0.9})
    assert accepted(Commons(mastered=0.6), seen) == BOTH
    assert accepted(Commons(mastered=0.59), seen) == OWN
    assert accepted(Commons(mastered=0.0), view("a", answers=STYLES, chances={"a": 0.1, "b": 0.9})) == OWN


def test_without_a_gate_everything_right_is_taken():
    assert accepted(Commons(gate=False), view("a", answers=STYLES, likely={"7": -0.1, "seven": -5.0})) == BOTH


def test_a_learner_without_a_right_answer_recognises_nothing_but_takes_what_it_needs():
    answers = {"a": {"p0": [WRONG] * 4}, "b": {"p1": [RIGHT] * 4}}
    assert accepted(Commons(), view("a", answers=answers, chances={"a": 0.5, "b": 0.5})) == []
    assert accepted(Commons(), view("a", answers=answers, chances={"a": 0.0, "b": 0.5})) == [("b", "p1", "7")]


@pytest.mark.parametrize("familiar", [0.0, 0.5, 1.0])
def test_the_bound_is_a_quantile_of_the_learners_own_right_answers(familiar: float):
    own = [("1", 1.0), ("2", 1.0), ("3", 1.0)]
    likely = {"1": -3.0, "2": -2.0, "3": -1.0, "x": -2.5, "y": -1.5, "z": -0.5}
    answers = {"a": {"p0": own}, "b": {"p1": [("x", 1.0), ("y", 1.0), ("z", 1.0)]}}
    taken = accepted(Commons(familiar=familiar), view("a", answers=answers, likely=likely))
    assert [text for source, _, text in taken if source == "b"] == {
        0.0: ["x", "y", "z"],
        0.5: ["y", "z"],
        1.0: ["z"],
    }[familiar]


@given(
    rewards=st.lists(st.sampled_from([RIGHT, WRONG, OTHER_STYLE]), min_size=8, max_size=8),
    logp=st.floats(-20, 0),
    chances=st.fixed_dictionaries({"a": st.floats(0, 1), "b": st.floats(0, 1)}),
    familiar=st.floats(0, 1),
)
def test_own_right_answers_always_pass_and_wrong_ones_never(rewards, logp, chances, familiar):
    answers = {"a": {"p0": rewards[:4]}, "b": {"p1": rewards[4:]}}
    seen = view("a", answers=answers, likely={"seven": logp}, chances=chances)
    pool = distinct(seen.table, seen.verified)
    taken = Commons(familiar=familiar).accepted(seen, pool)
    assert not (taken & ~pool).any()
    assert taken[0].equal(pool[0])
