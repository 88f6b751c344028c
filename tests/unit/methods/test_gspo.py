"""Methods that share nothing see one group: their own."""

import pytest
import torch

from hacrl.algorithm import GrpoObjective, GspoObjective
from hacrl.methods.grpo import Grpo
from hacrl.methods.gspo import Gspo
from helpers_methods import view


@pytest.mark.parametrize("method", [Gspo(), Grpo(), Gspo(name="gspo_x2")])
def test_own_answers_are_compared_with_their_own_group(method):
    seen = view("a")
    (term,) = method.loss_terms(seen)
    spread = 0.5 + 1e-6  # sample deviation of 1, 0, 1, 1
    expected = torch.tensor([0.25, -0.75, 0.25, 0.25], dtype=torch.float64) / spread
    torch.testing.assert_close(term.advantages[0, 0], expected)
    assert not term.advantages[0, 1].any()
    assert term.mask.equal(seen.own)
    assert term.mask[0].all()
    assert not term.mask[1].any()
    assert term.updates is None


def test_epochs_repeat_the_term_and_settings_reach_the_objective():
    (term,) = Gspo(epochs=2).loss_terms(view())
    assert term.passes == 2
    assert Gspo(clip_low=0.1, clip_high=0.2).loss_terms(view())[0].objective == GspoObjective(0.1, 0.2)
    assert Grpo().loss_terms(view())[0].objective == GrpoObjective(0.2, 0.28)
    assert [method.rollout_factor(2) for method in (Gspo(), Gspo(name="gspo_x2"), Grpo())] == [1, 2, 1]
