"""Rejection fine-tuning (RFT, arXiv 2308.01825; ReST-EM, arXiv 2312.06585), every agent alone."""

from __future__ import annotations

from typing import ClassVar, Literal

from hacrl.methods.base import View
from hacrl.methods.common import MorePrompts, distinct, imitation_term
from hacrl.methods.pool import PASSES
from hacrl.recipe.fields import Count
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Rft(MorePrompts):
    """Own distinct right responses are imitated, and nothing else: no advantage, no ratio, no failures."""

    name: Literal["rft"] = "rft"
    """`rft`."""
    passes: Count = PASSES
    """Times a step's verified responses are imitated."""

    shares: ClassVar[bool] = False
    differs_alone: ClassVar[str] = "it imitates own right responses and has no policy gradient"

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many mini-batches as GSPO's, in every pass."""
        return mini_batches * self.prompts_each(1, agents) * self.passes

    def loss_terms(self, view: View) -> list[LossTerm]:
        """One term: the pool of own right responses, as `pool` has it after GSPO."""
        updates = view.mini_batches * self.prompts_each(1, len(view.table.agents))
        return [imitation_term(view, distinct(view.table, view.own & view.verified), updates, self.passes)]
