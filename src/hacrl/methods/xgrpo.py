"""Our reading of XGRPO (arXiv 2605.07244): only rewards are shared; agents learn from own responses."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from hacrl.algorithm import advantages
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OneUpdatePerMiniBatch
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Xgrpo(GspoOnOwn, OneUpdatePerMiniBatch):
    """Own responses, compared with everybody's responses to the prompt."""

    name: Literal["xgrpo"] = "xgrpo"
    """`xgrpo`: our reading of XGRPO."""

    needs_logps: ClassVar[bool] = False
    needs_all_peers: ClassVar[str | None] = "compares own responses with all peers' rewards"

    def loss_terms(self, view: View) -> list[LossTerm]:
        """One term: mean and spread of the rewards are those of all agents together."""
        plain = torch.ones_like(view.omega)
        values, _ = advantages(view.table.rewards, plain, reward_max=view.reward_max, mask=view.table.mask)
        return [LossTerm(self.own_objective, values[view.k], view.own, view.equal_weights)]
