"""One-way imitation: everybody learns the strongest agent's verified responses; it learns alone."""

from __future__ import annotations

from typing import Literal

import torch

from hacrl.methods.base import View
from hacrl.methods.common import distinct, imitation_term, own_term, strongest
from hacrl.methods.opd import OneTeacher
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class SftStrongest(OneTeacher):
    """GSPO on own responses, then the strongest agent's distinct verified responses are imitated."""

    name: Literal["sft_strongest"] = "sft_strongest"
    """`sft_strongest`: the strongest agent's verified responses are imitated."""

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The second term is everybody's but the strongest agent's."""
        own, teacher = own_term(view, self.own_objective), strongest(view)
        if teacher == view.k:
            return [own]
        right = torch.zeros_like(view.verified)
        right[teacher] = view.verified[teacher]
        return [own, imitation_term(view, distinct(view.table, right) & view.new, view.peer_updates)]
