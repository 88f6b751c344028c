"""Capability that depends on the prompt: every agent's chance of success there, and how sure it is.

Nothing but outcomes is needed, no labels. The learner describes every prompt by features, numbers that it
computes itself, and predicts every agent's share of right responses from them, by Bayesian linear regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hacrl.algorithm.checks import as_mask, check_count, check_finite, check_number, check_shapes
from hacrl.defaults import CAPABILITY_FLOOR, CONTEXTUAL_MEMORY, OMEGA_CLAMP

RATIOS = (0.0, *(4.0**power for power in range(-4, 6)))
"""Variance of the weights over that of the noise: hypotheses, the first that the features say nothing."""
UNKNOWN = 1 / 12
"""Variance of a share of which nothing is known, i.e. of a uniform one; its mean is 1/2."""


@dataclass(frozen=True)
class Belief:
    """What a learner believes about every agent's chance of success at every prompt."""

    mean: Tensor
    """[j, b], between 0 and 1."""
    variance: Tensor
    """[j, b], of the mean chance at prompts with these features; what is particular to a single prompt, and
    the luck of its responses, are not part of it."""

    def better(self, k: int) -> Tensor:
        """[j, b]: the probability that agent j is better at the prompt than agent k; 1/2 for j = k."""
        spread = (self.variance + self.variance[k]).clamp(min=1e-12).sqrt()
        found: Tensor = torch.special.ndtr((self.mean - self.mean[k]) / spread)
        return found

    def omega(self, clamp: tuple[float, float] = OMEGA_CLAMP) -> Tensor:
        """omega[k, j, b]: agent k's chance of success at the prompt over agent j's, clamped.

        A chance below its own standard deviation cannot be told from that: it counts as much.
        """
        chance = torch.maximum(self.mean, self.variance.sqrt()).clamp(min=CAPABILITY_FLOOR)
        return (chance[:, None] / chance[None, :]).clamp(*clamp)


class ContextualCapability:
    """One learner's estimate of every agent's success as a function of a prompt's features.

    It keeps weighted sums only: `moments[j]` of (1, features, share) over the prompts that agent j responded
    to. With every step, earlier ones count `memory` times as much as before. So its size depends neither on
    the number of prompts nor on that of steps, and restoring the sums restores it exactly.
    """

    def __init__(self, agents: int, features: int, memory: float = CONTEXTUAL_MEMORY) -> None:
        check_count("agents", agents, low=1)
        check_count("features", features, low=1)
        check_number("memory", memory, low=0.0, high=1.0)
        self.agents = agents
        self.features = features
        self.memory = memory
        self._moments = torch.zeros(agents, features + 2, features + 2, dtype=torch.float64)

    def forget(self) -> None:
        """A new step begins: what is known counts less."""
        self._moments *= self.memory

    def observe(self, features: Tensor, shares: Tensor, tried: Tensor) -> None:
        """`features[b, f]` of prompts and `shares[j, b]` of right responses, where `tried[j, b]`."""
        check_shapes(features=(features, "bf"), shares=(shares, "jb"), tried=(tried, "jb"))
        tried = as_mask("tried", tried)
        check_finite("features", features)
        check_finite("shares", torch.where(tried, shares, 0.0), 1.0)
        for moments, share, where in zip(self._moments, shares.double(), tried, strict=True):
            ones = torch.ones(int(where.sum()), 1, dtype=torch.float64)
            seen = torch.cat([ones, features[where].double(), share[where, None]], 1)
            moments += seen.T @ seen

    def believe(self, features: Tensor) -> Belief:
        """The belief about prompts with these `features[b, f]`."""
        check_shapes(features=(features, "bf"))
        pooled = self._moments.sum(0)
        count = pooled[0, 0].clamp(min=1e-12)
        inner = slice(1, self.features + 1)
        square = pooled.diagonal()[inner] / count
        variance = square - (pooled[0, inner] / count) ** 2
        varies = variance > 1e-12 * square  # the others say nothing
        scale = torch.where(varies, 1 / (self.features * variance.clamp(min=1e-300)).sqrt(), 0.0)
        found = [_regression(moments, features.double(), scale) for moments in self._moments]
        means, variances = zip(*found, strict=True)
        return Belief(torch.stack(means), torch.stack(variances))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, as plain JSON values: the lower triangle of every agent's moments."""
        rows, columns = torch.tril_indices(self.features + 2, self.features + 2)
        return {"features": self.features, "moments": self._moments[:, rows, columns].tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state_dict`."""
        size = self.features + 2
        rows, columns = torch.tril_indices(size, size)
        lengths = [len(moments) for moments in state["moments"]]
        if lengths != [len(rows)] * self.agents:
            raise ValueError(f"moments: expected {self.agents} x {len(rows)} numbers, got {lengths}")
        triangles = torch.tensor(state["moments"], dtype=torch.float64)
        check_finite("moments", triangles)
        self._moments[:, rows, columns] = triangles
        self._moments[:, columns, rows] = triangles


def _regression(moments: Tensor, features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance [b] of one agent's success, from its `moments` of (1, features, share).

    share = level + weights . (features - their mean) * scale + noise. The weights' variance is a multiple of
    the noise's; the multiples in `RATIOS` are averaged by their evidence. The level has seen one prompt more
    than there were: a share of 1/2, give or take `UNKNOWN`.
    """
    count = moments[0, 0]
    centre = moments[0, 1:] / count.clamp(min=1e-12)
    spread = moments[1:, 1:] - count * torch.outer(centre, centre)
    inner, cross, total = spread[:-1, :-1] * scale * scale[:, None], spread[:-1, -1] * scale, spread[-1, -1]
    values, vectors = torch.linalg.eigh(inner)  # with these axes the weights are independent
    values, slopes = values.clamp(min=0), vectors.T @ cross
    ratios = torch.tensor(RATIOS, dtype=torch.float64)[:, None]
    shrunk = ratios / (1 + ratios * values)  # [r, f]: the weights' variance after the data, over the noise's
    weights = shrunk * slopes
    noise = ((total - weights @ slopes).clamp(min=0) + UNKNOWN) / (count + 1)  # [r]
    evidence = -0.5 * (count * noise.log() + torch.log1p(ratios * values).sum(1))
    trust = evidence.softmax(0)
    places = ((features - centre[:-1]) * scale) @ vectors  # [b, f]
    level = (moments[0, -1] + 0.5) / (count + 1)
    means = (level + weights @ places.T).clamp(0, 1)  # [r, b]
    variances = noise[:, None] * (1 / (count + 1) + shrunk @ places.square().T)
    mean = trust @ means
    return mean, trust @ (variances + means.square()) - mean.square()
