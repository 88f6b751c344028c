"""Worked numbers from an independent implementation, in float64, to 1e-9 relative."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from hacrl.algorithm import Capability, HacpoParams, advantages, grpo_loss, hacpo_loss

GOLDEN = Path(__file__).parents[2] / "golden"


def cases(name):
    loaded = json.loads((GOLDEN / f"{name}.json").read_text())
    return [pytest.param(case, id=f"{name}-{number}") for number, case in enumerate(loaded)]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def padded(rows):
    """Rows of different lengths -> values[s, t] and mask[s, t], with NaN as padding."""
    values = pad_sequence([tensor(row) for row in rows], batch_first=True, padding_value=torch.nan)
    return values, ~values.isnan()


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("case", cases("capability"))
def test_capability(case):
    capability = Capability(case["agents"], case["window"], case["floor"], tuple(case["clamp"]))
    for means, estimates, omega in zip(case["batch_means"], case["estimates"], case["omega"], strict=True):
        capability.update(means)
        assert_close(capability.estimates, tensor(estimates))
        assert_close(capability.omega, tensor(omega))


@pytest.mark.parametrize("case", cases("advantages"))
def test_advantages(case):
    actual, baseline = advantages(
        tensor(case["rewards"]),
        tensor(case["omega"]),
        epsilon=case["epsilon"],
        reward_max=case["reward_max"],
    )
    assert_close(actual, tensor(case["advantages"]))
    assert_close(baseline, tensor(case["baseline"]))


def assert_loss_and_gradient(case, logps, mask, loss):
    """`loss[s]` is unreduced; the golden value is its mean over the mini-batch."""
    mean = loss.mean()
    assert_close(mean.detach(), tensor(case["loss"]))
    (gradient,) = torch.autograd.grad(mean, logps)
    expected, _ = padded(case["grad_token_logps"])
    assert_close(gradient, torch.where(mask, expected, 0.0))


@pytest.mark.parametrize("case", cases("hacpo_loss"))
def test_hacpo_loss(case):
    rows, settings = case["rows"], case["settings"]
    params = HacpoParams(
        clip_low=settings["eps_low"],
        clip_high=settings["eps_high"],
        delta=settings["delta"],
        delta_step=settings["delta_step"],
        alpha=settings["alpha"],
    )
    logps, mask = padded([row["target_logps"] for row in rows])
    logps.requires_grad_()
    loss = hacpo_loss(
        logps,
        mask,
        tensor([row["source_mean_logp"] for row in rows]),
        tensor([row["advantage"] for row in rows]),
        torch.tensor([row["own"] for row in rows]),
        tensor([row["omega"] for row in rows]),
        case["update"],
        params,
    )
    assert_loss_and_gradient(case, logps, mask, loss)


@pytest.mark.parametrize("case", cases("grpo_loss"))
def test_grpo_loss(case):
    rows, settings = case["rows"], case["settings"]
    logps, mask = padded([row["target_logps"] for row in rows])
    source_logps, _ = padded([row["source_logps"] for row in rows])
    logps.requires_grad_()
    loss = grpo_loss(
        logps,
        mask,
        source_logps,
        tensor([row["advantage"] for row in rows]),
        clip_low=settings["eps_low"],
        clip_high=settings["eps_high"],
    )
    assert_loss_and_gradient(case, logps, mask, loss)
