"""Losses of other published methods on peers' responses, unreduced as in `losses`.

Weights and filters are taken at the current policy and have no gradient of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hacrl.algorithm.checks import (
    LARGEST_ADVANTAGE,
    as_token_mask,
    check_finite,
    check_number,
    check_shapes,
)
from hacrl.algorithm.ratio import bounded, masked_mean, sequence_ratio
from hacrl.defaults import FTIS_KL_LIMIT, FTIS_TRUNCATION, GRAFT_FLOOR, LUFFY_SHAPING


def truncated_loss(
    logps: Tensor,
    mask: Tensor,
    source_logps: Tensor,
    source_mean_logp: Tensor,
    advantage: Tensor,
    truncation: float = FTIS_TRUNCATION,
    kl_limit: float = FTIS_KL_LIMIT,
    *,
    length_scale: Tensor | None = None,
) -> Tensor:
    """F-TIS: -min(R, truncation) * A * log pi per token, with R = pi / pi_source.

    A response with A < 0 and an estimated KL(source || learner) of at least `kl_limit` nats has no gradient:
    pushing down a response that the learner would hardly ever sample only adds noise. Where `source_logps`
    are unknown (0) because the source has other tokens, R is the sequence ratio at every token.
    """
    mask = _checked(logps, mask, advantage)
    check_shapes(
        mask=(mask, "st"), source_logps=(source_logps, "st"), source_mean_logp=(source_mean_logp, "s")
    )
    check_number("truncation", truncation, low=0.0)
    check_number("kl_limit", kl_limit, low=0.0)
    logps = torch.where(mask, logps, 0.0)
    now = logps.detach()
    by_token = now - source_logps
    overall = sequence_ratio(now, mask, source_mean_logp, length_scale).log()[:, None]
    known = (source_logps != 0).any(-1, keepdim=True)
    log_ratio = torch.where(mask, torch.where(known, by_token, overall), 0.0)
    kept = (advantage > 0) | (-log_ratio.sum(-1) < kl_limit)
    weight = bounded(log_ratio).exp().clamp(max=truncation)
    return -torch.where(kept, advantage, 0.0) * masked_mean(weight * logps, mask)


def admitted_loss(
    logps: Tensor,
    mask: Tensor,
    source_mean_logp: Tensor,
    advantage: Tensor,
    floor: float = GRAFT_FLOOR,
    *,
    length_scale: Tensor | None = None,
) -> Tensor:
    """GRAFT: -min(s, 1) * A * log pi per token where the sequence ratio s is above `floor`, nothing below."""
    mask = _checked(logps, mask, advantage)
    check_shapes(logps=(logps, "st"), source_mean_logp=(source_mean_logp, "s"))
    check_number("floor", floor, low=0.0)
    ratio = sequence_ratio(logps.detach(), mask, source_mean_logp, length_scale)
    weight = torch.where(ratio > floor, ratio.clamp(max=1.0), 0.0)
    return -weight * advantage * masked_mean(logps, mask)


def shaped_loss(logps: Tensor, mask: Tensor, advantage: Tensor, shaping: float = LUFFY_SHAPING) -> Tensor:
    """LUFFY: -f(pi) * A per token, f(p) = p / (p + shaping): unlikely tokens have a larger
    gradient than under p itself, and the source's probabilities are not needed.
    """
    mask = _checked(logps, mask, advantage)
    check_number("shaping", shaping, low=1e-6)
    probability = torch.where(mask, logps, 0.0).exp()
    return -advantage * masked_mean(probability / (probability + shaping), mask)


def likelihood_loss(logps: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """-weight * log pi(y) / |y|: the negative log-likelihood per token of a text."""
    mask = _checked(logps, mask, weight)
    return -weight * masked_mean(logps, mask)


def distillation_loss(logps: Tensor, mask: Tensor, teacher_logps: Tensor, weight: Tensor) -> Tensor:
    """On-policy distillation: every token of a response has the advantage log teacher - log learner.

    The gradient of the sum is the single-sample estimate of that of the reverse KL to the teacher.
    """
    mask = _checked(logps, mask, weight)
    check_shapes(logps=(logps, "st"), teacher_logps=(teacher_logps, "st"))
    logps = torch.where(mask, logps, 0.0)
    advantage = bounded(torch.where(mask, teacher_logps - logps.detach(), 0.0))
    return -weight * (advantage * logps).sum(-1)


def _checked(logps: Tensor, mask: Tensor, advantage: Tensor) -> Tensor:
    """The token mask, after the checks that all losses here need."""
    check_shapes(logps=(logps, "st"), mask=(mask, "st"), advantage=(advantage, "s"))
    check_finite("advantage", advantage, LARGEST_ADVANTAGE)
    return as_token_mask(mask)
