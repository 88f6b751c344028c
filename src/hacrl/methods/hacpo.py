"""HACPO and what is left when mechanisms are taken away: everybody learns from everybody's answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from hacrl.algorithm import GspoObjective, HacpoObjective, HacpoParams, Objective, advantages
from hacrl.methods.base import Method, View
from hacrl.sharing import LossTerm

Mechanism = Literal["capability_baseline", "coefficient", "exponent", "stepwise", "clipping"]
"""What can be taken away from HACPO, one at a time or together."""


@dataclass(frozen=True)
class Sharing(Method):
    """One group of all agents' answers; own answers first, then the peers', under one objective."""

    name: str
    objective: Objective
    capability_baseline: bool = True
    """Mechanism 1: scale peers' rewards by omega in the baseline."""
    coefficient: bool = True
    """Mechanism 2: weigh a peer's answer by its capability over the learner's."""

    def lessons(self, view: View) -> list[LossTerm]:
        """One lesson on everything the learner hears."""
        table = view.table
        values, _ = self.advantages(table.rewards, view.omega, reward_max=view.reward_max, mask=table.mask)
        return [LossTerm(self.objective, values[view.k], table.mask, self.coefficients(view.omega)[view.k])]

    def advantages(
        self, rewards: Tensor, omega: Tensor, *, reward_max: float = 1.0, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`rewards[j, b, i]` -> `(advantages[k, j, b, i], baseline[k, b])`."""
        scale = omega if self.capability_baseline else torch.ones_like(omega)
        return advantages(rewards, scale, reward_max=reward_max, mask=mask)

    def coefficients(self, omega: Tensor) -> Tensor:
        """`[k, j]`: the weight of source j's answers in learner k's update, omega[j, k]."""
        return omega.T if self.coefficient else torch.ones_like(omega)


def hacpo(params: HacpoParams | None = None, *, without: tuple[Mechanism, ...] = ()) -> Sharing:
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
    return Sharing(
        name="-".join(("hacpo", *(f"no_{mechanism}" for mechanism in without))),
        objective=HacpoObjective(params),
        capability_baseline="capability_baseline" not in without,
        coefficient="coefficient" not in without,
    )


def naive(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Sharing:
    """Share everything with no correction: one joint group, every answer under GSPO."""
    return Sharing("naive", GspoObjective(clip_low, clip_high), capability_baseline=False, coefficient=False)
