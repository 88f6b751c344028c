"""How much peers' responses weigh for a learner, and how good a baseline is: pure functions."""

from __future__ import annotations

import math
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


def effective_sample_size(weights: Tensor) -> float:
    """(sum w)^2 / sum w^2 of non-negative weights `[s]`: as many equally weighted samples."""
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


def largest_advantage(responses: int, rewards: Tensor, reward_max: float = 1.0) -> float:
    """The largest |A| among so many `responses` to a prompt, if rewards take only the two values seen.

    One response that differs from all others has the smallest spread, range / sqrt(responses), and the
    baseline lies in [0, reward_max]. With more than two values the spread has no lower bound: infinity.
    """
    values = sorted(set(rewards.flatten().tolist()))
    if len(values) > 2:
        return math.inf
    if len(values) < 2:
        return 0.0
    lowest, highest = map(float, values)
    furthest = max(highest, reward_max) - min(lowest, 0.0)
    return math.sqrt(responses) * furthest / (highest - lowest)


@dataclass(frozen=True, slots=True)
class EstimatorError:
    """How far an estimate of the expected reward is from the truth."""

    bias: float
    """Mean over prompts."""
    bias_error: float
    """Standard error of the bias over prompts."""
    systematic: float
    """Root mean square over prompts of each prompt's own bias: what more responses would not reduce."""
    rmse: float
    """Root mean square error of one estimate for one prompt: systematic part and noise together."""


def estimator_error(estimates: Tensor, truth: Tensor, truth_variance: Tensor) -> EstimatorError:
    """`estimates[r, b]` of repeated draws against `truth[b]`, itself a mean with `truth_variance[b]`.

    The truth must come from other samples than the estimates; its own variance is subtracted from the
    squared errors.
    """
    check_shapes(estimates=(estimates, "rb"), truth=(truth, "b"), truth_variance=(truth_variance, "b"))
    draws, prompts = estimates.shape
    if draws < 2 or prompts < 2:
        raise ValueError(f"estimates: expected at least 2 draws of 2 prompts, got {draws} of {prompts}")
    off = (estimates - truth).double()
    mean_off = off.mean(0)
    noise = float(truth_variance.mean())
    squares = float(off.square().mean()) - noise
    systematic = float((mean_off.square() - off.var(0) / draws).mean()) - noise
    return EstimatorError(
        bias=float(off.mean()),
        bias_error=float(mean_off.std()) / math.sqrt(prompts),
        systematic=math.sqrt(max(0.0, systematic)),
        rmse=math.sqrt(max(0.0, squares)),
    )


def cosine(a: Tensor, b: Tensor) -> float:
    """Cosine of the angle between two vectors `[p]`; NaN when one of them is zero."""
    check_shapes(a=(a, "p"), b=(b, "p"))
    a, b = a.double(), b.double()
    norms = a.norm() * b.norm()
    return float(a @ b / norms) if norms > 0 else math.nan


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """How much a source's responses weigh in a learner's updates."""

    rows: int
    flat: float
    """Share without an advantage: all responses to the prompt got the same reward."""
    outside: float
    """Share with an advantage that a window or clip cuts off."""
    effective_sample_size: float
    """(sum w)^2 / sum w^2 over the weights w of responses with an advantage."""
    weight_variance: float
    """Of the weights w of responses with an advantage, 0 for those cut off."""
    largest: float
    """The largest |w * A|."""

    @property
    def zero_gradient(self) -> float:
        """Share without any gradient."""
        return self.flat + self.outside

    @property
    def ess_ratio(self) -> float:
        """Effective sample size per response with a gradient: 1 when all weigh the same; NaN without any."""
        with_gradient = round(self.rows * (1.0 - self.zero_gradient))
        return self.effective_sample_size / with_gradient if with_gradient else math.nan


def sample_statistics(coefficients: Tensor, advantage: Tensor) -> SampleStatistics:
    """From weight times advantage, and the advantage, of all of a source's responses `[s]`."""
    check_shapes(coefficients=(coefficients, "s"), advantage=(advantage, "s"))
    trained = advantage != 0
    weights = (coefficients[trained] / advantage[trained]).double()
    count = max(1, len(coefficients))
    return SampleStatistics(
        rows=len(coefficients),
        flat=int((~trained).sum()) / count,
        outside=int((weights == 0).sum()) / count,
        effective_sample_size=effective_sample_size(weights),
        weight_variance=float(weights.var()) if len(weights) > 1 else 0.0,
        largest=float(coefficients.abs().max()) if len(coefficients) else 0.0,
    )
