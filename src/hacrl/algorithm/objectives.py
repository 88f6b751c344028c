"""Losses with their settings, as the agents run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hacrl.algorithm.batch import Objective, SourceData, takes_ratios
from hacrl.algorithm.losses import (
    grpo_loss,
    gspo_loss,
    hacpo_loss,
    imitation_loss,
    ppo_loss,
    surrogate_loss,
)
from hacrl.algorithm.peer_losses import (
    admitted_loss,
    distillation_loss,
    likelihood_loss,
    shaped_loss,
    truncated_loss,
)
from hacrl.algorithm.ratio import (
    HacpoParams,
    window_lower,
)
from hacrl.defaults import (
    FTIS_KL_LIMIT,
    FTIS_TRUNCATION,
    GRAFT_FLOOR,
    GRPO_CLIP_HIGH,
    GRPO_CLIP_LOW,
    GSPO_CLIP_HIGH,
    GSPO_CLIP_LOW,
    LUFFY_SHAPING,
    PPO_CLIP_HIGH,
    PPO_CLIP_LOW,
)


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

    def window(self, update: int) -> tuple[float, float] | None:
        """Outside these bounds of the ratio, a peer's response has no gradient at this update."""
        return (window_lower(update, self.params), 1.0) if self.params.window else None


@dataclass(frozen=True)
class GspoObjective:
    """`gspo_loss` on every response, whoever drew it."""

    clip_low: float = GSPO_CLIP_LOW
    clip_high: float = GSPO_CLIP_HIGH

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
    """`grpo_loss`; own responses, or peers' that the learner has scored: it needs log-probs per token."""

    clip_low: float = GRPO_CLIP_LOW
    clip_high: float = GRPO_CLIP_HIGH

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return grpo_loss(logps, mask, data.source_logps, data.advantage, self.clip_low, self.clip_high)


@dataclass(frozen=True)
class PpoObjective:
    """`ppo_loss`; own responses that a critic has judged: it needs advantages per token."""

    clip_low: float = PPO_CLIP_LOW
    clip_high: float = PPO_CLIP_HIGH

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

    takes_ratios: ClassVar[bool] = False

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return imitation_loss(logps, mask, data.advantage)


@dataclass(frozen=True)
class SplitObjective:
    """One objective for own responses and another for peers', in the same update."""

    own: Objective
    peers: Objective

    @property
    def takes_ratios(self) -> bool:
        """As the one for own responses does."""
        return takes_ratios(self.own)

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return torch.where(
            data.own, self.own(logps, mask, data, update), self.peers(logps, mask, data, update)
        )


@dataclass(frozen=True)
class TruncatedObjective:
    """`truncated_loss`."""

    truncation: float = FTIS_TRUNCATION
    kl_limit: float = FTIS_KL_LIMIT

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

    floor: float = GRAFT_FLOOR

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

    shaping: float = LUFFY_SHAPING

    takes_ratios: ClassVar[bool] = False

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return shaped_loss(logps, mask, data.advantage, self.shaping)


@dataclass(frozen=True)
class LikelihoodObjective:
    """`likelihood_loss`, the advantage being the weight."""

    takes_ratios: ClassVar[bool] = False

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return likelihood_loss(logps, mask, data.advantage)


@dataclass(frozen=True)
class DistillationObjective:
    """`distillation_loss`: the rows have been scored by the teacher, the advantage is the weight."""

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return distillation_loss(logps, mask, data.source_logps, data.advantage)
