"""One-way imitation: everybody learns the strongest agent's verified answers; it learns alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hacrl.algorithm import GspoObjective
from hacrl.methods.base import Method, View
from hacrl.methods.common import strongest
from hacrl.methods.gspo import own_term
from hacrl.methods.pooled import distinct, imitation_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class SftStrongest(Method):
    """GSPO on own answers, then the strongest agent's distinct verified answers imitated."""

    objective: GspoObjective
    name: str = "sft_strongest"

    def lessons(self, view: View) -> list[LossTerm]:
        """The second lesson is everybody's but the strongest agent's."""
        own, teacher = own_term(view, self.objective), strongest(view)
        if teacher == view.k:
            return [own]
        right = torch.zeros_like(view.verified)
        right[teacher] = view.verified[teacher]
        return [own, imitation_term(view, distinct(view.table, right) & view.new, view.peer_updates)]


def sft_strongest(clip_low: float = 3e-4, clip_high: float = 4e-4) -> SftStrongest:
    """Everybody imitates the strongest."""
    return SftStrongest(GspoObjective(clip_low, clip_high))
