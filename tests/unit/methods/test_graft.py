"""GRAFT: failed groups are replaced, equally many in both directions."""

import torch

from hacrl.algorithm import AdmittedObjective
from hacrl.methods.graft import Graft, balanced
from hacrl.methods.gspo import Gspo
from helpers_methods import view

MIXED = [("1", 1.0), ("2", 0.0), ("2", 0.0), ("2", 0.0)]
FAILED = [("3", 0.0)] * 4


def test_a_failed_group_is_replaced_by_the_peers_with_the_peers_advantages():
    seen = view("a", answers={"a": {"p0": MIXED, "p1": FAILED}, "b": {"p0": FAILED, "p1": MIXED}})
    own, peers = Graft(floor=0.7).loss_terms(seen)
    assert own.mask[0].tolist() == [[True] * 4, [False] * 4]
    assert peers.mask.tolist() == [[[False] * 4] * 2, [[False] * 4, [True] * 4]]
    once = torch.tensor([0.75, -0.25, -0.25, -0.25], dtype=torch.float64) / (0.5 + 1e-6)
    torch.testing.assert_close(peers.advantages[1, 1], once)
    assert peers.objective == AdmittedObjective(0.7)
    assert (peers.updates, peers.complete, peers.scorer) == (1, False, None)  # one of two prompts


def test_nothing_is_taken_without_something_to_give():
    seen = view("a")  # a fails at p1, b at nothing
    own, peers = Graft().loss_terms(seen)
    assert own.mask.equal(Gspo().loss_terms(seen)[0].mask)
    assert not peers.mask.any()


def test_the_most_certain_groups_are_given_first_and_ties_together():
    four = torch.full((6,), 4)
    mine, theirs = torch.tensor([0, 0, 0, 2, 4, 0]), torch.tensor([1, 3, 3, 0, 0, 4])
    assert balanced(mine, theirs, four, four).tolist() == [False, True, True, False, False, False]
    assert balanced(theirs, mine, four, four).tolist() == [False, False, False, True, False, False]
    nobody = torch.zeros(6, dtype=torch.long)
    assert not balanced(mine, theirs, nobody, four).any()


def test_of_several_peers_the_one_with_most_right_answers_gives():
    better = [("1", 1.0), ("1", 1.0), ("2", 0.0), ("2", 0.0)]
    answers = {
        "a": {"p0": MIXED, "p1": FAILED},
        "b": {"p0": FAILED, "p1": MIXED},
        "c": {"p0": FAILED, "p1": better},
    }
    seen = view("a", agents="abc", answers=answers)
    assert Graft().grafts(seen).tolist() == [[False, False], [False, False], [False, True]]
