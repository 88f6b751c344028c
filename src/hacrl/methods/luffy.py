"""LUFFY (arXiv 2504.14945) on peers: a verified response of a peer replaces one's own last, policy-shaped."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from hacrl.algorithm import ShapedObjective, SplitObjective, advantages
from hacrl.defaults import LUFFY_SHAPING
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OneUpdatePerMiniBatch, one_each
from hacrl.recipe.fields import Above0
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Luffy(GspoOnOwn, OneUpdatePerMiniBatch):
    """For every prompt one group of own responses, one of them replaced by a peer's."""

    name: Literal["luffy"] = "luffy"
    """`luffy`."""
    shaping: Above0 = LUFFY_SHAPING
    """Gamma in p / (p + gamma), which takes the place of the ratio of peers' tokens."""

    needs_logps: ClassVar[bool] = False
    needs_all_peers: ClassVar[str | None] = "has peers' responses in the same updates as own ones"

    def loss_terms(self, view: View) -> list[LossTerm]:
        """One term: own responses and guests are compared with each other and learned in the same update."""
        mask = self.group(view)
        alike = torch.ones_like(view.omega)
        values, _ = advantages(view.table.rewards, alike, reward_max=view.reward_max, mask=mask)
        objective = SplitObjective(self.own_objective, ShapedObjective(self.shaping))
        term = LossTerm(
            objective, values[view.k], mask, view.equal_weights, updates=view.mini_batches, complete=True
        )
        return [term]

    def group(self, view: View) -> Tensor:
        """[j, b, i]: own responses; where a peer was right, one right response replaces the last of them."""
        tried = view.own.any(2).any(0)[None, :, None]
        guests = one_each(view, view.peers & view.verified & tried)
        mask = view.own | guests
        for b in guests.any(2).any(0).nonzero().flatten().tolist():
            mask[view.k, b, view.own[view.k, b].nonzero().max()] = False
        return mask
