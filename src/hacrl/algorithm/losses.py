"""Losses per response, unreduced: the caller averages over the mini-batch. Lower is better."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hacrl.algorithm.checks import (
    LARGEST_ADVANTAGE,
    LARGEST_OMEGA,
    as_mask,
    as_token_mask,
    check_finite,
    check_number,
    check_shapes,
)
from hacrl.algorithm.ratio import (
    LOG_RATIO_BOUND,
    HacpoParams,
    bounded,
    masked_mean,
    sequence_ratio,
    window_lower,
)
from hacrl.defaults import (
    GRPO_CLIP_HIGH,
    GRPO_CLIP_LOW,
    GSPO_CLIP_HIGH,
    GSPO_CLIP_LOW,
    PPO_CLIP_HIGH,
    PPO_CLIP_LOW,
)


def hacpo_loss(
    logps: Tensor,
    mask: Tensor,
    source_mean_logp: Tensor,
    advantage: Tensor,
    own: Tensor,
    omega: Tensor,
    update: int,
    params: HacpoParams,
    *,
    length_scale: Tensor | None = None,
) -> Tensor:
    """HACPO: GSPO on own responses, the capped and weighted ratio on peers' (paper, Eq. 12).

    `logps[s, t]` with gradient, `mask[s, t]`, everything else `[s]`; `omega[s]` is omega[source, learner];
    `update` counts the optimiser updates already made in this step; `length_scale` as in `sequence_ratio`.
    """
    check_shapes(logps=(logps, "st"), own=(own, "s"), omega=(omega, "s"))
    own, mask = as_mask("own", own), as_token_mask(mask)
    own_loss = gspo_loss(
        logps,
        mask,
        source_mean_logp,
        advantage,
        params.clip_low,
        params.clip_high,
        length_scale=length_scale,
        log_ratio_cap=params.log_ratio_cap,
    )
    ratio = sequence_ratio(logps, mask, source_mean_logp, length_scale, params.log_ratio_cap)
    if params.window:
        capped = ratio.clamp(window_lower(update, params), 1.0)  # mechanism 4: no gradient outside
        peer_loss = -capped * advantage
    else:
        capped = ratio
        peer_loss = own_loss
    return torch.where(own, own_loss, _peer_weight(capped, omega, params.alpha) * peer_loss)


def gspo_loss(
    logps: Tensor,
    mask: Tensor,
    source_mean_logp: Tensor,
    advantage: Tensor,
    clip_low: float = GSPO_CLIP_LOW,
    clip_high: float = GSPO_CLIP_HIGH,
    *,
    length_scale: Tensor | None = None,
    log_ratio_cap: float = LOG_RATIO_BOUND,
) -> Tensor:
    """GSPO (arXiv 2507.18071, Eq. 5): the clipped surrogate with one ratio per response."""
    check_shapes(logps=(logps, "st"), mask=(mask, "st"), source_mean_logp=(source_mean_logp, "s"))
    mask = as_token_mask(mask)
    check_finite("source_mean_logp", source_mean_logp)
    ratio = sequence_ratio(logps, mask, source_mean_logp, length_scale, log_ratio_cap)
    return _clipped_surrogate(ratio, advantage, clip_low, clip_high)


def grpo_loss(
    logps: Tensor,
    mask: Tensor,
    source_logps: Tensor,
    advantage: Tensor,
    clip_low: float = GRPO_CLIP_LOW,
    clip_high: float = GRPO_CLIP_HIGH,
) -> Tensor:
    """GRPO (arXiv 2402.03300, Eq. 3): the clipped surrogate with a ratio per token, averaged over them."""
    check_shapes(logps=(logps, "st"), mask=(mask, "st"), source_logps=(source_logps, "st"))
    mask = as_token_mask(mask)
    ratio = bounded(torch.where(mask, logps - source_logps, 0.0)).exp()
    return masked_mean(_clipped_surrogate(ratio, advantage, clip_low, clip_high), mask)


def ppo_loss(
    logps: Tensor,
    mask: Tensor,
    source_logps: Tensor,
    token_advantages: Tensor,
    mean_length: float,
    clip_low: float = PPO_CLIP_LOW,
    clip_high: float = PPO_CLIP_HIGH,
) -> Tensor:
    """PPO (arXiv 1707.06347, Eq. 7): the clipped surrogate with a ratio and an advantage per token.

    Summed over tokens and divided by the mean length of all responses: every token counts the same.
    """
    check_shapes(logps=(logps, "st"), mask=(mask, "st"), source_logps=(source_logps, "st"))
    check_shapes(logps=(logps, "st"), token_advantages=(token_advantages, "st"))
    mask = as_token_mask(mask)
    ratio = bounded(logps[mask] - source_logps[mask]).exp()  # a token is a response of its own here
    losses = _clipped_surrogate(ratio, token_advantages[mask], clip_low, clip_high)
    return torch.zeros_like(logps).masked_scatter(mask, losses).sum(-1) / mean_length


def surrogate_loss(
    logps: Tensor,
    mask: Tensor,
    source_mean_logp: Tensor,
    advantage: Tensor,
    *,
    length_scale: Tensor | None = None,
) -> Tensor:
    """-s * A: GSPO's surrogate without its clip."""
    check_shapes(logps=(logps, "st"), mask=(mask, "st"), source_mean_logp=(source_mean_logp, "s"))
    check_shapes(logps=(logps, "st"), advantage=(advantage, "s"))
    check_finite("source_mean_logp", source_mean_logp)
    check_finite("advantage", advantage, LARGEST_ADVANTAGE)
    return -sequence_ratio(logps, as_token_mask(mask), source_mean_logp, length_scale) * advantage


def imitation_loss(logps: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """-weight * log pi(y): plain log-likelihood, without a ratio or any other model's log-probs.

    The sum over tokens, not their mean: a mean would weigh the tokens of short texts more than those of long
    ones.
    """
    check_shapes(logps=(logps, "st"), mask=(mask, "st"), weight=(weight, "s"))
    check_finite("weight", weight, LARGEST_ADVANTAGE)
    return -weight * torch.where(as_token_mask(mask), logps, 0.0).sum(-1)


def kl_low_variance(logps: Tensor, reference_logps: Tensor, mask: Tensor) -> Tensor:
    """KL to a reference policy per response: mean over tokens of exp(d) - d - 1, d = reference - policy."""
    check_shapes(logps=(logps, "st"), reference_logps=(reference_logps, "st"), mask=(mask, "st"))
    mask = as_token_mask(mask)
    difference = bounded(torch.where(mask, reference_logps - logps, 0.0))
    return masked_mean(difference.exp() - difference - 1.0, mask)


def _peer_weight(capped: Tensor, omega: Tensor, alpha: float) -> Tensor:
    """omega * sg(c)^alpha: stronger sources weigh more (mechanism 2), unlikely responses less (3)."""
    check_finite("omega", omega, LARGEST_OMEGA)
    return omega * (capped.detach() ** alpha).clamp(max=math.exp(LOG_RATIO_BOUND))


def _clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """-min(ratio * A, clip(ratio) * A) for `ratio[s]` or `ratio[s, t]` and `advantage[s]`."""
    check_shapes(ratio=(ratio, "st"[: ratio.dim()]), advantage=(advantage, "s"))
    check_finite("advantage", advantage, LARGEST_ADVANTAGE)
    check_number("clip_low", clip_low, low=0.0, high=1.0)
    check_number("clip_high", clip_high, low=0.0)
    advantage = advantage.reshape(-1, *[1] * (ratio.dim() - 1))
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * advantage, clipped * advantage)
