"""Methods, ablations and diagnostics on numbers small enough to check by hand."""

import math
from dataclasses import replace

import pytest
import torch

from hacrl.agents.rendering import Rendering
from hacrl.algorithm import (
    Belief,
    Capability,
    HacpoParams,
    effective_sample_size,
    hacpo_loss,
    ratio_quantiles,
    window_lower,
    window_shares,
)
from hacrl.methods.hacpo import Hacpo
from hacrl.sharing import Learner, Reencoder, build_batches
from hacrl.types import Prompt
from helpers_methods import view
from helpers_sharing import char_level

OMEGA = torch.tensor([[1.0, 0.5], [2.0, 1.0]])
REWARDS = torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]]])


def peer_loss(params, update=0, log_ratio=-0.1):
    """Loss and gradient of one peer's response of one token, advantage 1, omega 2."""
    logps = torch.tensor([[-1.0 + log_ratio]], requires_grad=True)
    one = torch.ones(1)
    loss = hacpo_loss(
        logps, one[:, None].bool(), -one, one, one.bool().logical_not(), 2 * one, update, params
    )
    (gradient,) = torch.autograd.grad(loss, logps)
    return loss.item(), gradient.item()


def test_each_mechanism_can_be_switched_off():
    ratio = pytest.approx(-(2 * 0.904837418**2), rel=1e-6)
    assert peer_loss(HacpoParams()) == (ratio, ratio)
    no_exponent = Hacpo(without=("exponent",)).objective.params
    assert peer_loss(no_exponent) == (pytest.approx(-2 * 0.904837418, rel=1e-6),) * 2
    # Four updates into the step the window has closed to [0.9, 1]; one more and 0.905 is outside.
    assert peer_loss(HacpoParams(), update=4)[1] == ratio
    assert peer_loss(HacpoParams(), update=5)[1] == 0.0
    assert peer_loss(Hacpo(without=("stepwise",)).objective.params, update=5)[1] == ratio
    # Without a window GSPO's rule applies: min(sA, clip(s)A) lets a ratio below 1 through for A > 0.
    no_window = Hacpo(without=("clipping",)).objective.params
    assert peer_loss(no_window, log_ratio=-0.5)[1] == pytest.approx(-2 * 0.60653066**2, rel=1e-6)
    assert peer_loss(HacpoParams(), log_ratio=-0.5)[1] == 0.0
    assert Hacpo(without=("coefficient",)).coefficients(OMEGA).tolist() == [[1, 1], [1, 1]]
    assert Hacpo().coefficients(OMEGA).tolist() == [[1.0, 2.0], [0.5, 1.0]]
    _, baseline = Hacpo().advantages(REWARDS, OMEGA)
    assert baseline.tolist() == [[0.5], [1.0]]  # agent 1: (2 * 1 + 1 + 1) / 4 = 1, not above reward_max
    _, plain = Hacpo(without=("capability_baseline",)).advantages(REWARDS, OMEGA)
    assert plain.tolist() == [[0.75], [0.75]]
    assert Hacpo(without=("stepwise", "coefficient")).label == "hacpo-no_stepwise-no_coefficient"


def test_a_log_ratio_has_no_gradient_beyond_its_cap():
    """GSPO's rule passes a ratio above 1 for a negative advantage: here -s A, up to the cap."""
    one = torch.ones(1, dtype=torch.float64)

    def own_gradient(cap: float) -> float:
        logps = torch.tensor([[2.0]], dtype=torch.float64, requires_grad=True)
        params = HacpoParams(log_ratio_cap=cap)
        loss = hacpo_loss(logps, one[:, None].bool(), 0 * one, -one, one.bool(), one, 0, params)
        return torch.autograd.grad(loss, logps)[0].item()

    assert own_gradient(3.0) == pytest.approx(math.exp(2.0))
    assert own_gradient(1.5) == 0.0
    assert Hacpo(log_ratio_cap=10.0).params.log_ratio_cap == 10.0
    assert Hacpo().params == HacpoParams()


def test_a_peer_is_never_up_weighted():
    assert peer_loss(HacpoParams(), log_ratio=0.3) == (-2.0, -0.0)


def test_the_fallback_of_a_learner_that_did_not_answer_is_the_plain_mean():
    mask = torch.tensor([[[True, True]], [[False, False]]])
    rewards = torch.tensor([[[0.0, 1.0]], [[0.0, 0.0]]])
    high = torch.tensor([[1.0, 1.0], [10.0, 1.0]])
    _, baseline = Hacpo().advantages(rewards, high, mask=mask)
    assert baseline.tolist() == [[0.5], [0.5]]


def test_a_prompt_nobody_answered_has_baseline_zero():
    actual, baseline = Hacpo().advantages(REWARDS, OMEGA, mask=torch.zeros_like(REWARDS).bool())
    assert not actual.any()
    assert baseline.tolist() == [[0.0], [0.0]]


def test_an_unscored_agent_keeps_its_window():
    capability = Capability(2, window=2)
    capability.update([0.2, 0.4])
    capability.update([0.4, float("nan")], scored=torch.tensor([True, False]))
    assert capability.estimates.tolist() == pytest.approx([0.3, 0.4])
    assert Capability(2).omega.tolist() == [[1, 1], [1, 1]]


def test_window_closes_at_the_stated_update():
    lowers = [window_lower(update, HacpoParams()) for update in range(10)]
    assert lowers == pytest.approx([0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.975, 1.0, 1.0])


def test_diagnostics():
    ratio = torch.tensor([0.5, 0.8, 0.9, 1.0, 1.1])
    shares = window_shares(ratio, 0, HacpoParams())
    assert (shares.inside, shares.below, shares.above) == pytest.approx((0.6, 0.2, 0.2))
    weights = torch.tensor([0.0, 1.28, 1.62, 2.0, 0.0])
    assert effective_sample_size(weights) == pytest.approx(4.9**2 / (1.28**2 + 1.62**2 + 4), rel=1e-6)
    assert effective_sample_size(torch.tensor([3.0, 3.0, 3.0])) == pytest.approx(3.0)
    assert effective_sample_size(torch.zeros(0)) == 0.0
    assert ratio_quantiles(ratio, (0.0, 0.5, 1.0)).tolist() == pytest.approx([0.5, 0.9, 1.1])
    assert ratio_quantiles(torch.zeros(0)).isnan().all()
    empty = window_shares(torch.zeros(0), 0, HacpoParams())
    assert (empty.inside, empty.below, empty.above) == (0, 0, 0)


def test_omega_can_depend_on_the_prompt():
    """Two prompts: the learner is half as good as its peer at the first, and as good at the second."""
    rewards = torch.tensor([[[0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    omega = torch.stack([OMEGA, torch.ones(2, 2)], 2)
    values, baseline = Hacpo().advantages(rewards, omega)
    # Prompt 0 as with OMEGA alone: (0 + 1 + .5 + .5) / 4; prompt 1 the plain mean.
    assert baseline.tolist() == [[0.5, 0.5], [1.0, 0.5]]
    for b, each in enumerate((OMEGA, torch.ones(2, 2))):
        alone, _ = Hacpo().advantages(rewards[:, b : b + 1], each)
        torch.testing.assert_close(values[:, :, b : b + 1], alone)
    assert Hacpo().coefficients(omega)[0].tolist() == [[1.0, 1.0], [2.0, 1.0]]


def test_a_contextual_omega_that_is_the_same_at_every_prompt_is_the_papers():
    plain = view("a")
    everywhere = replace(plain, prompt_omega=plain.omega[:, :, None].expand(-1, -1, 2))
    (expected,) = Hacpo().loss_terms(plain)
    (found,) = Hacpo(capability="contextual").loss_terms(everywhere)
    torch.testing.assert_close(found.advantages, expected.advantages)
    assert found.coefficients.tolist() == [[value] * 2 for value in expected.coefficients.tolist()]
    one = {name: Prompt(name, f"{name}=") for name in ("p0", "p1")}
    tokens = Reencoder(Learner("a", Rendering(char_level())), one)
    rows = [build_batches(plain.table, tokens, [term]).mini_batches for term in (found, expected)]
    assert rows[0] == rows[1]
    by_prompt = replace(found, coefficients=torch.tensor([[1.0, 1.0], [3.0, 7.0]]))
    batches = build_batches(plain.table, tokens, [by_prompt]).mini_batches
    assert {(row.source, row.prompt_id, row.omega) for rows in batches for row in rows} == {
        ("a", "p0", 1.0),
        ("a", "p1", 1.0),
        ("b", "p0", 3.0),
        ("b", "p1", 7.0),
    }


def test_omega_of_a_belief_is_clamped_and_counts_no_chance_below_its_deviation():
    mean = torch.tensor([[0.5, 0.0], [0.01, 0.9]], dtype=torch.float64)
    belief = Belief(mean, torch.full((2, 2), 0.01, dtype=torch.float64))
    omega = belief.omega((0.2, 5.0))
    torch.testing.assert_close(omega[0, 1], torch.tensor([5.0, 0.2], dtype=torch.float64))
    torch.testing.assert_close(belief.omega()[0, 1], torch.tensor([5.0, 1 / 9], dtype=torch.float64))
    assert omega[0, 0].tolist() == omega[1, 1].tolist() == [1.0, 1.0]
