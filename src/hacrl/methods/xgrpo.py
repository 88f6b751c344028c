"""XGRPO: only rewards are shared; everybody learns from its own answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hacrl.algorithm import GspoObjective, advantages
from hacrl.methods.base import Method, View
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Xgrpo(Method):
    """Own answers, compared with everybody's answers to the prompt (arXiv 2605.07244)."""

    objective: GspoObjective
    name: str = "xgrpo"

    def lessons(self, view: View) -> list[LossTerm]:
        """One lesson: mean and spread of the rewards are those of all agents together."""
        plain = torch.ones_like(view.omega)
        values, _ = advantages(view.table.rewards, plain, reward_max=view.reward_max, mask=view.table.mask)
        return [LossTerm(self.objective, values[view.k], view.own, view.equal_weights)]


def xgrpo(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Xgrpo:
    """Advantages from the pooled rewards, own answers only."""
    return Xgrpo(GspoObjective(clip_low, clip_high))
