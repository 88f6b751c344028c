"""Success-gated transfer: only where the learner failed altogether and a peer did not."""

from collections import Counter

import torch

from hacrl.methods.gspo import Gspo
from hacrl.methods.sgt import SuccessGated
from helpers_methods import ANSWERS, texts, view


def test_one_verified_answer_joins_the_failed_prompt_with_its_share_of_the_weight():
    seen = view("a")
    (term,) = SuccessGated(weight=0.1).loss_terms(seen)
    (alone,) = Gspo().loss_terms(seen)
    rescuers = term.mask & ~alone.mask
    assert texts(seen, rescuers) == [("b", "p1", "5")]
    assert term.mask[0].all()
    # Eight own rows and one rescuer: in their mean the rescuer counts 0.1 times as much as all own together.
    torch.testing.assert_close(term.advantages[rescuers], torch.tensor([0.8], dtype=torch.float64))
    assert term.advantages[0].equal(alone.advantages[0])
    assert (term.updates, term.complete) == (2, True)


def test_whoever_solved_something_is_not_rescued():
    seen = view("b")
    (term,) = SuccessGated().loss_terms(seen)
    assert term.mask.equal(seen.own)
    silent = {"p0": [("9", 0.0)] * 4, "p1": [("9", 0.0)] * 4}
    seen = view("a", answers={"a": ANSWERS["a"], "b": silent})
    (term,) = SuccessGated().loss_terms(seen)
    assert term.mask.equal(seen.own)


def test_the_rescuer_is_drawn_uniformly():
    def drawn(number):
        fails = [("x", 0.0)] * 4
        right = [(text, 1.0) for text in "1234"]
        answers = {
            "a": {"p0": fails, "p1": fails},
            "b": {"p0": [("y" * number, 1.0), *right[1:]], "p1": right},
        }
        seen = view("a", answers=answers)
        table = seen.table
        object.__setattr__(table, "step", number)
        return texts(seen, SuccessGated().rescuers(seen))[1][2]

    counts = Counter(drawn(number) for number in range(200))
    assert set(counts) == set("1234")
    assert min(counts.values()) > 25  # 50 expected, standard deviation 6
