"""LUFFY on peers: a verified answer of a peer in the place of one's own last, under policy shaping."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm import GspoObjective, ShapedObjective, SplitObjective, advantages
from hacrl.methods.base import Method, View
from hacrl.methods.common import one_each
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Luffy(Method):
    """One group of own answers and a guest's for every prompt (arXiv 2504.14945)."""

    objective: SplitObjective
    name: str = "luffy"

    def lessons(self, view: View) -> list[LossTerm]:
        """One lesson: own answers and guests are compared with each other and learned in the same update."""
        mask = self.group(view)
        alike = torch.ones_like(view.omega)
        values, _ = advantages(view.table.rewards, alike, reward_max=view.reward_max, mask=mask)
        lesson = LossTerm(
            self.objective, values[view.k], mask, view.equal_weights, updates=view.mini_batches, complete=True
        )
        return [lesson]

    def group(self, view: View) -> Tensor:
        """[j, b, i]: own answers; where a peer was right, one right answer instead of the last of them."""
        answered = view.own.any(2).any(0)[None, :, None]
        guests = one_each(view, view.peers & view.verified & answered)
        mask = view.own | guests
        for b in guests.any(2).any(0).nonzero().flatten().tolist():
            mask[view.k, b, view.own[view.k, b].nonzero().max()] = False
        return mask


def luffy(clip_low: float = 3e-4, clip_high: float = 4e-4, shaping: float = 0.1) -> Luffy:
    """Policy shaping on peers' verified answers."""
    return Luffy(SplitObjective(GspoObjective(clip_low, clip_high), ShapedObjective(shaping)))
