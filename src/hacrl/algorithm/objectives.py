"""Losses with their settings, as the agents run them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm.batch import SourceData
from hacrl.algorithm.losses import (
    grpo_loss,
    gspo_loss,
    hacpo_loss,
    imitation_loss,
    ppo_loss,
    surrogate_loss,
)
from hacrl.algorithm.ratio import HacpoParams


@dataclass(frozen=True)
class HacpoObjective:
    """`hacpo_loss`; with `all_peers` the learner's own responses are treated as a peer's as well."""

    params: HacpoParams
    all_peers: bool = False

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return hacpo_loss(
            logps,
            mask,
            data.source_mean_logp,
            data.advantage,
            torch.zeros_like(data.own) if self.all_peers else data.own,
            data.omega,
            update,
            self.params,
            length_scale=data.length_scale,
        )


@dataclass(frozen=True)
class GspoObjective:
    """`gspo_loss` on every response, whoever drew it."""

    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return gspo_loss(
            logps,
            mask,
            data.source_mean_logp,
            data.advantage,
            self.clip_low,
            self.clip_high,
            length_scale=data.length_scale,
        )


@dataclass(frozen=True)
class GrpoObjective:
    """`grpo_loss`; own responses, or peers' that the learner has scored: it compares token by token."""

    clip_low: float = 0.2
    clip_high: float = 0.28

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return grpo_loss(logps, mask, data.source_logps, data.advantage, self.clip_low, self.clip_high)


@dataclass(frozen=True)
class PpoObjective:
    """`ppo_loss`; own responses that a critic has judged, because it goes token by token."""

    clip_low: float = 0.2
    clip_high: float = 0.2

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        if data.token_advantages is None:
            raise ValueError("token_advantages: PPO needs an agent with a critic, and rows it has judged")
        return ppo_loss(
            logps,
            mask,
            data.source_logps,
            data.token_advantages,
            data.mean_length,
            self.clip_low,
            self.clip_high,
        )


@dataclass(frozen=True)
class SurrogateObjective:
    """`surrogate_loss`: the ratio times the advantage without any clip."""

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return surrogate_loss(
            logps, mask, data.source_mean_logp, data.advantage, length_scale=data.length_scale
        )


@dataclass(frozen=True)
class ImitationObjective:
    """`imitation_loss`: the log-likelihood of the text, times the advantage as its weight."""

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return imitation_loss(logps, mask, data.advantage)
