"""The sequence ratio between learner and source, and the stepwise window (paper, Sections 3.3 and 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm.checks import check_count, check_number
from hacrl.defaults import GSPO_CLIP_HIGH, GSPO_CLIP_LOW

LOG_RATIO_BOUND = 20.0
"""Log-ratios are cut here before exp. A ratio of e^20 is far outside every window; nothing overflows."""


@dataclass(frozen=True, slots=True)
class HacpoParams:
    """The settings of HACPO; the defaults are the paper's."""

    clip_low: float = GSPO_CLIP_LOW
    """Own responses: GSPO's clip below 1."""
    clip_high: float = GSPO_CLIP_HIGH
    """Own responses: GSPO's clip above 1."""
    delta: float = 0.2
    """Peers' responses: the window is [1 - delta, 1] at the first update of a step ..."""
    delta_step: float = 0.025
    """... and its lower bound rises by this much with every update (mechanism 4)."""
    alpha: float = 1.0
    """Exponent of the stop-gradient weight (mechanism 3); 0 switches it off."""
    window: bool = True
    """False: peers have no window; their ratio is clipped by GSPO's rule, like that of own responses."""
    log_ratio_cap: float = LOG_RATIO_BOUND
    """Log-ratios are cut here; beyond it there is no gradient. The authors' code has 10."""

    def __post_init__(self) -> None:
        check_number("clip_low", self.clip_low, low=0.0, high=1.0)
        check_number("clip_high", self.clip_high, low=0.0)
        check_number("delta", self.delta, low=0.0, high=1.0)
        check_number("delta_step", self.delta_step, low=0.0, high=1.0)
        check_number("alpha", self.alpha, low=0.0, high=10.0)
        check_number("log_ratio_cap", self.log_ratio_cap, low=0.0, high=LOG_RATIO_BOUND)


def window_lower(update: int, params: HacpoParams) -> float:
    """Lower bound of the peers' window after `update` optimiser updates in this step."""
    check_count("update", update)
    return min(1.0, 1.0 - params.delta + update * params.delta_step)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real tokens of each row. Padding may hold anything, NaN included."""
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1)


def bounded(log_ratio: Tensor, cap: float = LOG_RATIO_BOUND) -> Tensor:
    """Cut a log-ratio at +-cap; beyond it there is no gradient."""
    return log_ratio.clamp(-cap, cap)


def sequence_ratio(
    logps: Tensor,
    mask: Tensor,
    source_mean_logp: Tensor,
    length_scale: Tensor | None = None,
    cap: float = LOG_RATIO_BOUND,
) -> Tensor:
    """s = exp(mean_logp_learner - mean_logp_source_old): the geometric mean over tokens.

    `length_scale[s]` multiplies the log-ratio, for means in another unit than the learner's tokens; `cap`
    bounds it.
    """
    log_ratio = masked_mean(logps, mask) - source_mean_logp
    return bounded(log_ratio if length_scale is None else log_ratio * length_scale, cap).exp()
