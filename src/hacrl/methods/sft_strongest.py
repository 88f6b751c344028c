"""One-way imitation: everybody learns the strongest agent's verified responses; it learns alone."""

from __future__ import annotations

from typing import Literal

import torch

from hacrl.methods.base import View
from hacrl.methods.common import distinct, imitation_term, own_term, strongest
from hacrl.methods.opd import Taught
from hacrl.recipe.fields import Count
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class SftStrongest(Taught):
    """GSPO on own responses, then the strongest agent's distinct verified responses are imitated."""

    name: Literal["sft_strongest"] = "sft_strongest"
    """`sft_strongest`: the strongest agent's verified responses are imitated."""
    passes: Count = 1
    """Times a step's verified responses are imitated."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as `commons` makes with as many passes."""
        return mini_batches * (1 + (agents - 1) * self.passes if peers else 1)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The second term is everybody's but the strongest agent's."""
        own, teacher = own_term(view, self.own_objective), strongest(view)
        if teacher == view.k:
            return [own]
        right = torch.zeros_like(view.verified)
        right[teacher] = view.verified[teacher]
        imitated = distinct(view.table, right) & view.new
        return [own, imitation_term(view, imitated, view.peer_updates, self.passes)]
