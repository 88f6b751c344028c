"""Rejection fine-tuning: the imitation of `pool` without its policy gradient."""

from hacrl.methods.pool import OwnPool
from hacrl.methods.rft import Rft
from helpers_methods import texts, view


def test_own_distinct_right_texts_are_imitated_and_nothing_else():
    seen = view("a")
    (term,) = Rft(passes=3).loss_terms(seen)
    _, pooled = OwnPool(passes=3).loss_terms(seen)
    assert texts(seen, term.mask) == [("a", "p0", "+7"), ("a", "p0", "7")]
    assert term.advantages.equal(pooled.advantages)
    assert (term.objective, term.passes, term.complete) == (pooled.objective, 3, True)
    assert (term.updates, Rft(passes=3).updates(2, 2, 1)) == (2, 6)
    (term,) = Rft(prompt_factor="agents").loss_terms(view("a", "ab"))
    assert term.updates == 4


def test_an_agent_without_success_learns_nothing():
    failed = {"a": {"p0": [("8", 0.0)] * 4}}
    (term,) = Rft().loss_terms(view("a", "a", failed))
    assert not term.mask.any()
