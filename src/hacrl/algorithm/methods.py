"""A method = which responses a learner sees, with which advantage and weight, through which objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from hacrl.algorithm.advantage import advantages, own_advantages
from hacrl.algorithm.batch import Objective, SourceData
from hacrl.algorithm.objective import grpo_loss, gspo_loss, hacpo_loss
from hacrl.algorithm.ratio import HacpoParams

Mechanism = Literal["capability_baseline", "coefficient", "exponent", "stepwise", "clipping"]
"""What can be taken away from HACPO, one at a time or together."""


@dataclass(frozen=True)
class Method:
    """How agents learn from a step's responses. `omega[k, j]` is learner over source throughout."""

    name: str
    objective: Objective
    shares: bool = True
    """Whether a learner sees its peers' responses."""
    capability_baseline: bool = True
    """Mechanism 1: scale peers' rewards by omega in the baseline."""
    coefficient: bool = True
    """Mechanism 2: weigh a peer's response by its capability over the learner's."""
    rollout_factor: int = 1
    """How many times the recipe's samples per prompt are drawn."""

    def advantages(
        self, rewards: Tensor, omega: Tensor, *, reward_max: float = 1.0, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`rewards[j, b, i]` -> `(advantages[k, j, b, i], baseline[k, b])`."""
        if not self.shares:
            return own_advantages(rewards, mask=mask)
        scale = omega if self.capability_baseline else torch.ones_like(omega)
        return advantages(rewards, scale, reward_max=reward_max, mask=mask)

    def coefficients(self, omega: Tensor) -> Tensor:
        """`[k, j]`: the weight of source j's responses in learner k's update, omega[j, k]."""
        return omega.T if self.coefficient else torch.ones_like(omega)


@dataclass(frozen=True)
class HacpoObjective:
    """`hacpo_loss` with its settings."""

    params: HacpoParams

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return hacpo_loss(
            logps,
            mask,
            data.source_mean_logp,
            data.advantage,
            data.own,
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
    """`grpo_loss`; own responses only, because it compares token by token."""

    clip_low: float = 0.2
    clip_high: float = 0.28

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s]."""
        return grpo_loss(logps, mask, data.source_logps, data.advantage, self.clip_low, self.clip_high)


def hacpo(params: HacpoParams | None = None, *, without: tuple[Mechanism, ...] = ()) -> Method:
    """HACPO, or one of its ablations: `without=("coefficient",)`. Without all five it is `naive`."""
    for mechanism in without:
        if mechanism not in get_args(Mechanism):
            raise ValueError(f"without: expected one of {get_args(Mechanism)}, got {mechanism!r}")
    params = params or HacpoParams()
    if "exponent" in without:
        params = replace(params, alpha=0.0)
    if "stepwise" in without:
        params = replace(params, delta_step=0.0)
    if "clipping" in without:
        params = replace(params, window=False)
    return Method(
        name="-".join(("hacpo", *(f"no_{mechanism}" for mechanism in without))),
        objective=HacpoObjective(params),
        capability_baseline="capability_baseline" not in without,
        coefficient="coefficient" not in without,
    )


def naive(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Method:
    """Share everything with no correction: one joint group, every response under GSPO."""
    return Method("naive", GspoObjective(clip_low, clip_high), capability_baseline=False, coefficient=False)


def gspo(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Method:
    """Every agent alone with GSPO."""
    return Method("gspo", GspoObjective(clip_low, clip_high), shares=False)


def gspo_x2(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Method:
    """Every agent alone with GSPO and twice the rollouts."""
    return Method("gspo_x2", GspoObjective(clip_low, clip_high), shares=False, rollout_factor=2)


def grpo(clip_low: float = 0.2, clip_high: float = 0.28) -> Method:
    """Every agent alone with GRPO."""
    return Method("grpo", GrpoObjective(clip_low, clip_high), shares=False)
