"""Mechanism 1: capability-aware advantages for all learners at once (paper, Section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from hacrl.algorithm.checks import (
    LARGEST_OMEGA,
    LARGEST_REWARD,
    as_mask,
    check_finite,
    check_number,
    check_shapes,
)


def advantages(
    rewards: Tensor,
    omega: Tensor,
    *,
    epsilon: float = 1e-6,
    reward_max: float = 1.0,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`rewards[j, b, i]`, `omega[k, j]` or `[k, j, b]` -> `(advantages[k, j, b, i], baseline[k, b])`.

    baseline[k, b] = mean over (j, i) of omega[k, j] * R[j, b, i], the learner's expected reward
    estimated from everybody's responses; the spread is that of all agents' unscaled rewards for the prompt.

    `mask[j, b, i]` marks samples that exist and could be scored; the others get advantage 0 and take
    no part in mean or spread (their reward may be NaN).

    Two guards: a prompt whose rewards are all equal gives no gradient (the baseline is that reward, the
    advantage 0); a baseline above `reward_max` cannot be an expected reward, and the learner's own mean
    for the prompt is used instead (the plain mean of everybody if the learner has no response to it).
    """
    mask = _scored(rewards, mask)
    lengths = check_shapes(rewards=(rewards, "jbi"), omega=(omega, "kjb"[: max(2, omega.dim())]))
    if lengths["k"] != lengths["j"]:
        raise ValueError(f"omega: expected a square tensor [k, j], got shape {tuple(omega.shape)}")
    check_number("epsilon", epsilon, low=0.0)
    check_number("reward_max", reward_max)
    # Always in float64: the tensors are tiny, and float32 would lose the sums of large rewards.
    reward = torch.where(mask, rewards, 0.0).double()
    check_finite("rewards", reward, LARGEST_REWARD)
    check_finite("omega", omega, LARGEST_OMEGA)

    baseline = _baseline(reward, omega.double(), mask, reward_max)
    spread = _spread(reward, mask)
    centred = reward[None] - baseline[:, None, :, None]
    scaled = centred / (spread[None, None, :, None] + epsilon)
    # A spread of 0 means equal rewards (advantage 0 by the first guard); epsilon = 0 would make it 0/0.
    counts = mask[None] & (spread > 0)[None, None, :, None]
    dtype = rewards.dtype if rewards.is_floating_point() else torch.get_default_dtype()
    return torch.where(counts, scaled, 0.0).to(dtype), baseline.to(dtype)


def own_advantages(
    rewards: Tensor, *, epsilon: float = 1e-6, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Every agent by itself: the plain group advantage of GRPO and GSPO, in the layout of `advantages`.

    The entries of other agents' samples (j != k) are 0.
    """
    mask = _scored(rewards, mask)
    agents, prompts, _ = rewards.shape
    alone = torch.ones(1, 1, device=rewards.device)
    # An agent's group for a prompt is a "prompt" of its own, with one agent's responses.
    groups = rewards.reshape(1, agents * prompts, -1)
    own, baseline = advantages(groups, alone, epsilon=epsilon, mask=mask.reshape(groups.shape))
    own = own.reshape(rewards.shape)
    diagonal = torch.eye(agents, dtype=torch.bool, device=rewards.device)[:, :, None, None]
    return torch.where(diagonal, own[None], 0.0), baseline.reshape(agents, prompts)


def _scored(rewards: Tensor, mask: Tensor | None) -> Tensor:
    """mask[j, b, i] of the samples that count; all of them by default."""
    check_shapes(rewards=(rewards, "jbi"))
    if mask is None:
        return torch.ones_like(rewards, dtype=torch.bool)
    check_shapes(rewards=(rewards, "jbi"), mask=(mask, "jbi"))
    return as_mask("mask", mask)


def _baseline(reward: Tensor, omega: Tensor, mask: Tensor, reward_max: float) -> Tensor:
    """baseline[k, b] with both guards; `reward` is 0 where masked."""
    sums = reward.sum(-1)  # [j, b]
    counts = mask.sum(-1)  # [j, b]
    responses = counts.sum(0).clamp(min=1)  # [b]
    expected = (omega @ sums if omega.dim() == 2 else (omega * sums).sum(1)) / responses
    everybody = sums.sum(0) / responses
    own = torch.where(counts > 0, sums / counts.clamp(min=1), everybody)
    expected = torch.where(expected > reward_max, own, expected)
    lowest, highest = _extremes(reward, mask)
    # With no response at all, lowest > highest: the baseline is 0.
    uniform = torch.where(mask.any(-1).any(0), highest, 0.0)
    return torch.where(lowest >= highest, uniform, expected)


def _spread(reward: Tensor, mask: Tensor) -> Tensor:
    """Sample standard deviation per prompt over every agent's responses, exactly 0 when they are equal."""
    count = mask.sum((0, 2))
    mean = reward.sum((0, 2)) / count.clamp(min=1)
    deviations = torch.where(mask, reward - mean[None, :, None], 0.0)
    spread = (deviations.square().sum((0, 2)) / (count - 1).clamp(min=1)).sqrt()
    lowest, highest = _extremes(reward, mask)
    return torch.where(lowest >= highest, 0.0, spread)


def _extremes(reward: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    lowest = torch.where(mask, reward, torch.inf).amin((0, 2))
    highest = torch.where(mask, reward, -torch.inf).amax((0, 2))
    return lowest, highest
