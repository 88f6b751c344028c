"""Values, advantages and losses of a critic against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hacrl.algorithm import CriticParams, PpoObjective, SourceData, gae, ppo_loss, value_loss, whitened

ROW = torch.ones(1, 3, dtype=torch.bool)
TWO = torch.tensor([[True, True, True], [True, False, False]])
NUMBERS = st.floats(-10, 10, allow_nan=False)


def test_gae_by_hand():
    """Surprises -0.375, 0.125, 0.25; each advantage adds a quarter of the next."""
    values = torch.tensor([[0.5, 0.25, 0.75]])
    advantages, returns = gae(torch.tensor([1.0]), values, ROW, gamma=0.5, lam=0.5)
    torch.testing.assert_close(advantages, torch.tensor([[-0.328125, 0.1875, 0.25]]))
    torch.testing.assert_close(returns, torch.tensor([[0.171875, 0.4375, 1.0]]))


@given(st.lists(st.tuples(NUMBERS, st.lists(NUMBERS, min_size=1, max_size=6)), min_size=1, max_size=5))
def test_without_discount_every_token_is_compared_with_the_reward(rows):
    lengths = torch.tensor([len(values) for _, values in rows])
    mask = torch.arange(6) < lengths[:, None]
    values = torch.zeros(mask.shape, dtype=torch.float64)
    values[mask] = torch.tensor([value for _, own in rows for value in own], dtype=torch.float64)
    rewards = torch.tensor([reward for reward, _ in rows], dtype=torch.float64)
    advantages, returns = gae(rewards, values, mask)
    torch.testing.assert_close(advantages, torch.where(mask, rewards[:, None] - values, 0.0))
    torch.testing.assert_close(returns, torch.where(mask, rewards[:, None], 0.0))


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_padding_never_leaks(lam):
    """What lies behind a response, even NaN, changes neither its advantages nor anybody's whitening."""
    rewards, values = torch.tensor([1.0, 0.5]), torch.tensor([[0.1, 0.2, 0.3], [0.4, math.nan, 7.0]])
    advantages, returns = gae(rewards, values, TWO, gamma=0.9, lam=lam)
    alone, _ = gae(rewards[1:], torch.tensor([[0.4]]), TWO[1:, :1], gamma=0.9, lam=lam)
    assert advantages[1].tolist() == pytest.approx([float(alone), 0.0, 0.0])
    assert float(alone) == pytest.approx(0.1)
    assert returns[1].tolist() == pytest.approx([0.5, 0.0, 0.0])
    noisy = torch.where(TWO, advantages, math.nan)
    torch.testing.assert_close(whitened(noisy, TWO), whitened(advantages, TWO))
    loss = value_loss(torch.where(TWO, 0.0, math.nan), values, torch.where(TWO, 1.0, math.inf), TWO, 0.5)
    assert bool(loss.isfinite().all())


def test_whitening_by_hand():
    """1, 2, 3 and 6: mean 3, variance 3.5."""
    found = whitened(torch.tensor([[1.0, 2.0, 3.0], [6.0, 0.0, 0.0]]), TWO)
    expected = torch.tensor([[-2.0, -1.0, 0.0], [3.0, 0.0, 0.0]]) / math.sqrt(3.5)
    torch.testing.assert_close(found, expected)
    assert not whitened(torch.full((2, 3), 4.0), TWO).any()


def test_value_loss_and_its_clip_by_hand():
    """The old values are 0, the returns 1. A value at 0.6 has moved by more than 0.5: it is not pushed on."""
    values = torch.tensor([[0.2, 0.6, -0.6]], requires_grad=True)
    loss = value_loss(values, torch.zeros(1, 3), torch.ones(1, 3), ROW, clip=0.5)
    assert loss.tolist() == pytest.approx([0.5 * (0.8**2 + 0.5**2 + 1.6**2)])
    loss.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([[-0.8, 0.0, -1.6]]))


def test_ppo_loss_and_its_clip_by_hand():
    """Ratios 1.5, 0.5 and 1 with advantages 1, 1, -2; then a response of one token with ratio 0.5 and -1."""
    ratio = torch.tensor([[1.5, 0.5, 1.0], [0.5, 9.0, 9.0]])
    logps = (ratio.log() - 1.0).requires_grad_()
    source = torch.full((2, 3), -1.0)
    advantages = torch.tensor([[1.0, 1.0, -2.0], [-1.0, math.nan, 5.0]])
    loss = ppo_loss(logps, TWO, source, advantages, mean_length=2.0)
    assert loss.tolist() == pytest.approx([-(1.2 + 0.5 - 2.0) / 2, 0.8 / 2])
    loss.sum().backward()
    expected = torch.tensor([[0.0, -0.25, 1.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(logps.grad, expected)
    # The mean over two responses is the mean over their four tokens.
    assert loss.mean().item() == pytest.approx((-(1.2 + 0.5 - 2.0) + 0.8) / 4)


def test_rows_that_nobody_judged_are_refused():
    one = torch.ones(1)
    data = SourceData(-one, -torch.ones(1, 3), one, one.bool(), one)
    with pytest.raises(ValueError, match="token_advantages: PPO needs an agent with a critic"):
        PpoObjective()(-torch.ones(1, 3), ROW, data, 0)


@pytest.mark.parametrize("setting", [{"gamma": 1.1}, {"lam": -0.1}, {"value_clip": -1.0}])
def test_settings_are_checked(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        CriticParams(**setting)
