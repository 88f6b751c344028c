"""Diagnostics on numbers small enough to check by hand, and against simulations with known answers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hacrl.algorithm import advantages
from hacrl.algorithm.diagnostics import cosine, estimator_error, largest_advantage, sample_statistics

DTYPE = torch.float64


def test_sample_statistics_by_hand():
    """Five responses: two live ones of weights 2 and 1, one cut off, two without an advantage."""
    coefficients, advantages = [2.0, -3.0, 0.0, 0.0, 0.0], [1.0, -3.0, 2.0, 0.0, 0.0]
    found = sample_statistics(torch.tensor(coefficients), torch.tensor(advantages))
    assert (found.rows, found.flat, found.outside, found.zero_gradient) == pytest.approx((5, 0.4, 0.2, 0.6))
    assert found.effective_sample_size == pytest.approx(3.0**2 / (2.0**2 + 1.0**2))
    assert found.ess_ratio == pytest.approx(1.8 / 2)
    assert found.weight_variance == pytest.approx(1.0)  # of 2, 1, 0
    assert found.largest == 3.0
    assert math.isnan(sample_statistics(torch.zeros(2), torch.ones(2)).ess_ratio)


@given(st.integers(0, 2**31 - 1), st.integers(1, 4), st.integers(1, 5))
def test_no_binary_advantage_is_above_its_bound(seed, agents, samples):
    random = torch.Generator().manual_seed(seed)
    rewards = (torch.rand(agents, 6, samples, generator=random) < torch.rand(6, 1, generator=random)).double()
    omega = (torch.rand(agents, agents, generator=random).double() * 4 - 2).exp()
    found, _ = advantages(rewards, omega)
    bound = largest_advantage(agents * samples, torch.tensor([0.0, 1.0]))
    assert bound == math.sqrt(agents * samples)
    assert float(found.abs().max()) <= bound


def test_the_bound_is_reached_and_graded_rewards_have_none():
    lone = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]], dtype=DTYPE)
    found, _ = advantages(lone, torch.full((1, 1), 1e-9, dtype=DTYPE))  # a baseline of almost 0
    assert float(found.max()) == pytest.approx(largest_advantage(4, lone), rel=1e-5) == pytest.approx(2.0)
    assert largest_advantage(4, torch.tensor([0.0, 0.5, 1.0])) == math.inf
    assert largest_advantage(4, torch.tensor([0.5, 0.5])) == 0.0


def test_estimator_error_takes_a_simulation_apart():
    """Prompts with a bias of +-0.1 around 0.02, noise of 0.2, and a truth that is itself noisy."""
    random = torch.Generator().manual_seed(0)
    prompts, draws = 400, 50
    truth = torch.rand(prompts, dtype=DTYPE, generator=random)
    own_bias = 0.02 + 0.1 * (torch.arange(prompts) % 2 * 2.0 - 1.0)
    noise = 0.2 * torch.randn(draws, prompts, dtype=DTYPE, generator=random)
    seen_truth = truth + 0.15 * torch.randn(prompts, dtype=DTYPE, generator=random)
    error = estimator_error(
        truth + own_bias + noise, seen_truth, torch.full((prompts,), 0.15**2, dtype=DTYPE)
    )
    assert abs(error.bias - 0.02) < 3 * error.bias_error
    assert error.bias_error == pytest.approx(
        math.sqrt((0.1**2 + 0.15**2 + 0.2**2 / draws) / prompts), rel=0.1
    )
    assert error.systematic == pytest.approx(math.sqrt(0.02**2 + 0.1**2), rel=0.15)
    assert error.rmse == pytest.approx(math.sqrt(0.02**2 + 0.1**2 + 0.2**2), rel=0.05)


def test_estimator_error_needs_repetitions():
    with pytest.raises(ValueError, match="at least 2 draws of 2 prompts, got 1 of 3"):
        estimator_error(torch.zeros(1, 3), torch.zeros(3), torch.zeros(3))


def test_cosine():
    assert cosine(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])) == pytest.approx(2**-0.5)
    assert math.isnan(cosine(torch.zeros(2), torch.ones(2)))
