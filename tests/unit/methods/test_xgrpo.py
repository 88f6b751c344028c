"""XGRPO: everybody's rewards, own answers."""

import torch

from hacrl.methods.xgrpo import Xgrpo
from helpers_methods import view


def test_own_answers_are_compared_with_everybodys():
    seen = view("a")
    (term,) = Xgrpo().loss_terms(seen)
    assert term.mask.equal(seen.own)
    # p0: four of eight are right; p1: one of eight, a peer's, so that all own answers are below the mean.
    p0, p1 = (8 / 4 / 7) ** 0.5 + 1e-6, (7 / 8 / 7) ** 0.5 + 1e-6
    expected = [[0.5 / p0, -0.5 / p0, 0.5 / p0, 0.5 / p0], [-0.125 / p1] * 4]
    torch.testing.assert_close(term.advantages[0], torch.tensor(expected, dtype=torch.float64))
