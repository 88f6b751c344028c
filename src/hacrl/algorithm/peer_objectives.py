"""The published methods' losses on peers' responses with their settings, as the agents run them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm.batch import Objective, SourceData
from hacrl.algorithm.peer_losses import (
    admitted_loss,
    distillation_loss,
    likelihood_loss,
    shaped_loss,
    truncated_loss,
)


@dataclass(frozen=True)
class SplitObjective:
    """One objective for own responses and another for peers', in the same update."""

    own: Objective
    peers: Objective

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return torch.where(
            data.own, self.own(logps, mask, data, update), self.peers(logps, mask, data, update)
        )


@dataclass(frozen=True)
class TruncatedObjective:
    """`truncated_loss`."""

    truncation: float = 2.0
    kl_limit: float = 50.0

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return truncated_loss(
            logps,
            mask,
            data.source_logps,
            data.source_mean_logp,
            data.advantage,
            self.truncation,
            self.kl_limit,
            length_scale=data.length_scale,
        )


@dataclass(frozen=True)
class AdmittedObjective:
    """`admitted_loss`."""

    floor: float = 0.8

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return admitted_loss(
            logps,
            mask,
            data.source_mean_logp,
            data.advantage,
            self.floor,
            length_scale=data.length_scale,
        )


@dataclass(frozen=True)
class ShapedObjective:
    """`shaped_loss`."""

    shaping: float = 0.1

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return shaped_loss(logps, mask, data.advantage, self.shaping)


@dataclass(frozen=True)
class LikelihoodObjective:
    """`likelihood_loss`, the advantage being the weight."""

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return likelihood_loss(logps, mask, data.advantage)


@dataclass(frozen=True)
class DistillationObjective:
    """`distillation_loss`: the rows have been scored by the teacher, the advantage is the weight."""

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return distillation_loss(logps, mask, data.source_logps, data.advantage)
