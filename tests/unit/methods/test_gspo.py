"""Methods that share nothing see one group: their own."""

import math

import pytest
import torch

from hacrl.algorithm import GrpoObjective, GspoObjective, SourceData
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


@pytest.mark.parametrize("method", [Gspo, Grpo])
def test_several_epochs_need_a_wide_clip(method):
    """Once an update has moved the policy by 1%, GSPO's own clip leaves later epochs nothing to learn."""
    data = SourceData(
        source_mean_logp=torch.tensor([-1.0, -1.0]),
        source_logps=torch.full((2, 3), -1.0),
        advantage=torch.tensor([1.0, -1.0]),
        own=torch.tensor([True, True]),
        omega=torch.ones(2),
    )
    found = {}
    for name, clip in (("narrow", (3e-4, 4e-4)), ("wide", (0.2, 0.28))):
        logps = torch.tensor([[-0.99] * 3, [-1.01] * 3], requires_grad=True)
        (term,) = method(epochs=4, clip_low=clip[0], clip_high=clip[1]).loss_terms(view())
        assert term.passes == 4
        loss = term.objective(logps, torch.ones(2, 3, dtype=torch.bool), data, 0).sum()
        (gradient,) = torch.autograd.grad(loss, logps)
        found[name] = gradient.sum(1).tolist()
    assert found["narrow"] == [0.0, 0.0]
    assert found["wide"] == pytest.approx([-math.exp(0.01), math.exp(-0.01)], rel=1e-4)


def test_epochs_repeat_the_term_and_settings_reach_the_objective():
    (term,) = Gspo(epochs=2).loss_terms(view())
    assert term.passes == 2
    assert Gspo(clip_low=0.1, clip_high=0.2).loss_terms(view())[0].objective == GspoObjective(0.1, 0.2)
    assert Grpo().loss_terms(view())[0].objective == GrpoObjective(0.2, 0.28)
    assert [method.rollout_factor(2) for method in (Gspo(), Gspo(name="gspo_x2"), Grpo())] == [1, 2, 1]
