"""LUFFY: a right answer of a peer takes the place of one's own last."""

import torch

from hacrl.methods.gspo import Gspo
from hacrl.methods.luffy import Luffy
from helpers_methods import ANSWERS, texts, view


def test_the_guest_keeps_the_size_of_the_group_and_shares_its_mean():
    seen = view("a")
    (term,) = Luffy().loss_terms(seen)
    guests = term.mask & ~seen.own
    assert texts(seen, guests) == [("b", "p0", "7"), ("b", "p1", "5")]
    assert term.mask[0].tolist() == [[True, True, True, False]] * 2
    # p0: own 1, 0, 1 and the guest's 1; p1: own 0, 0, 0 and the guest's 1. The spread of both is a half.
    spread = 0.5 + 1e-6
    expected = torch.tensor([[0.25, -0.75, 0.25], [-0.25] * 3], dtype=torch.float64) / spread
    torch.testing.assert_close(term.advantages[0, :, :3], expected)
    torch.testing.assert_close(
        term.advantages[guests], torch.tensor([0.25, 0.75], dtype=torch.float64) / spread
    )
    assert (term.updates, term.complete) == (2, True)


def test_without_a_right_peer_nothing_is_replaced():
    wrong = {"p0": [("9", 0.0)] * 4, "p1": [("9", 0.0)] * 4}
    seen = view("a", answers={"a": ANSWERS["a"], "b": wrong})
    (term,), (plain,) = Luffy().loss_terms(seen), Gspo().loss_terms(seen)
    assert term.mask.equal(plain.mask)
    assert term.advantages[term.mask].equal(plain.advantages[plain.mask])
