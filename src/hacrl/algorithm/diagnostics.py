"""What peers' data is worth to a learner, as pure functions of ratios and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm.checks import check_finite, check_shapes
from hacrl.algorithm.ratio import HacpoParams, window_lower


@dataclass(frozen=True, slots=True)
class WindowShares:
    """Shares of peers' responses by where their ratio lies; they sum to 1 (all 0 without responses)."""

    inside: float
    below: float
    above: float


def window_shares(ratio: Tensor, update: int, params: HacpoParams) -> WindowShares:
    """Where the ratios `[s]` of peers' responses lie at this update: only those inside give a gradient."""
    check_shapes(ratio=(ratio, "s"))
    count = max(1, len(ratio))
    below = int((ratio < window_lower(update, params)).sum())
    above = int((ratio > 1.0).sum())
    return WindowShares((len(ratio) - below - above) / count, below / count, above / count)


def peer_weights(ratio: Tensor, omega: Tensor, update: int, params: HacpoParams) -> Tensor:
    """The factor on each response's policy gradient `[s]`: omega * c^(1 + alpha), 0 outside the window."""
    check_shapes(ratio=(ratio, "s"), omega=(omega, "s"))
    inside = (ratio >= window_lower(update, params)) & (ratio <= 1.0)
    return torch.where(inside, omega * ratio ** (1.0 + params.alpha), 0.0)


def effective_sample_size(weights: Tensor) -> float:
    """(sum w)^2 / sum w^2 of non-negative weights `[s]`: how many equally weighted samples they are worth."""
    check_shapes(weights=(weights, "s"))
    check_finite("weights", weights)
    if not len(weights) or float(weights.max()) <= 0.0:
        return 0.0
    scaled = weights.double() / weights.max().double()  # the size does not depend on the scale
    return float(scaled.sum().square() / scaled.square().sum())


def ratio_quantiles(ratio: Tensor, levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Tensor:
    """Quantiles of the ratios `[s]` at the given levels; NaN without responses."""
    check_shapes(ratio=(ratio, "s"))
    at = torch.tensor(levels, dtype=torch.float64)
    return ratio.double().quantile(at) if len(ratio) else torch.full_like(at, torch.nan)
