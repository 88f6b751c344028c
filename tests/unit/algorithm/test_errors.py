"""Bad arguments raise an error that names the argument, the value and what was expected."""

import pytest
import torch

from hacrl.algorithm import Capability, HacpoParams, advantages, grpo_loss, gspo_loss, hacpo_loss
from hacrl.methods.hacpo import Hacpo

REWARDS = torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]]])
OMEGA = torch.ones(2, 2)
LOGPS = torch.full((2, 3), -1.0)
MASK = torch.ones(2, 3, dtype=torch.bool)
ROW = torch.ones(2)
OWN = torch.tensor([True, False])


def nan_at(tensor, *index):
    changed = tensor.clone()
    changed[index] = torch.nan
    return changed


def hacpo_with(**changed):
    arguments = {
        "logps": LOGPS,
        "mask": MASK,
        "source_mean_logp": -ROW,
        "advantage": ROW,
        "own": OWN,
        "omega": ROW,
        "update": 0,
        "params": HacpoParams(),
    }
    return hacpo_loss(**(arguments | changed))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: advantages(REWARDS[0], OMEGA),
            r"rewards: expected a tensor \[j, b, i\], got shape \(1, 2\)",
        ),
        (lambda: advantages(REWARDS, torch.ones(3, 3)), r"omega: expected 2 along axis j .* \(3, 3\)"),
        (lambda: advantages(REWARDS, torch.ones(3, 2)), r"omega: expected a square tensor .* \(3, 2\)"),
        (lambda: advantages(nan_at(REWARDS, 1, 0, 1), OMEGA), r"rewards\[1, 0, 1\]: .* finite .* nan"),
        (lambda: advantages(REWARDS * 1e13, OMEGA), r"rewards\[0, 0, 1\]: .* at most 1e\+12, got "),
        (lambda: advantages(REWARDS, nan_at(OMEGA, 0, 1)), r"omega\[0, 1\]: expected a finite"),
        (lambda: advantages(REWARDS, OMEGA, mask=MASK), r"mask: expected a tensor \[j, b, i\]"),
        (lambda: advantages(REWARDS, OMEGA, mask=REWARDS + 1), "mask: expected booleans or 0 and 1, got 2.0"),
        (lambda: advantages(REWARDS, OMEGA, epsilon=-1.0), r"epsilon: expected a number in .* got -1\.0"),
        (lambda: advantages([[[0.0]]], OMEGA), r"rewards: expected a tensor \[j, b, i\], got list"),
        (lambda: Capability(0), "agents: expected a whole number >= 1, got 0"),
        (lambda: Capability(2, window=-3), "window: expected a whole number >= 1, got -3"),
        (lambda: Capability(2, window=2.5), "window: expected a whole number >= 1, got 2.5"),
        (lambda: Capability(2, floor=0.0), "floor: expected a number"),
        (lambda: Capability(2, clamp=(2.0, 10.0)), r"clamp\[0\]: expected a number in .* got 2\.0"),
        (lambda: Capability(2, clamp=(0.1, 0.5)), r"clamp\[1\]: expected a number in .* got 0\.5"),
        (lambda: Capability(2).update([0.1, 0.2, 0.3]), "batch_means: expected 2 agents, got 3"),
        (lambda: Capability(2).update([0.1, float("nan")]), r"batch_means\[1\]: expected a finite"),
        (
            lambda: Capability(2).load_state_dict(Capability(3).state_dict()),
            "history: expected 2 agents, got 3",
        ),
        (
            lambda: Capability(2).load_state_dict(Capability(2, window=4).state_dict()),
            "window: expected 5, got 4",
        ),
        (lambda: HacpoParams(delta=1.2), r"delta: expected a number in \[0, 1\], got 1\.2"),
        (lambda: HacpoParams(delta=-0.1), r"delta: expected a number in \[0, 1\], got -0\.1"),
        (lambda: HacpoParams(delta_step=-1), "delta_step: expected a number"),
        (lambda: HacpoParams(alpha=float("nan")), "alpha: expected a number .* got nan"),
        (lambda: HacpoParams(clip_low="0.1"), "clip_low: expected a number .* got '0.1'"),
        (lambda: hacpo_with(update=-1), "update: expected a whole number >= 0, got -1"),
        (lambda: hacpo_with(own=ROW * 0.5), "own: expected booleans or 0 and 1, got 0.5"),
        (lambda: hacpo_with(omega=nan_at(ROW, 1)), r"omega\[1\]: expected a finite .* got nan"),
        (lambda: hacpo_with(advantage=nan_at(ROW, 0)), r"advantage\[0\]: expected a finite .* got nan"),
        (lambda: hacpo_with(source_mean_logp=nan_at(ROW, 0)), r"source_mean_logp\[0\]: expected a finite"),
        (lambda: hacpo_with(advantage=torch.ones(3)), "advantage: expected 2 along axis s"),
        (lambda: gspo_loss(LOGPS, MASK & ~OWN[:, None], ROW, ROW), r"mask\[0\]: expected at least one token"),
        (lambda: grpo_loss(LOGPS, MASK, LOGPS[:, :2], ROW), "source_logps: expected 3 along axis t"),
        (lambda: Hacpo(without=("magic",)), r"without.0\n  Input should be 'capability_baseline', .*'magic'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_an_unscorable_reward_may_be_nan_behind_the_mask():
    rewards = nan_at(REWARDS, 0, 0, 0)
    actual, _ = advantages(rewards, OMEGA, mask=~rewards.isnan())
    assert actual.isfinite().all()
