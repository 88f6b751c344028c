"""GSPO (arXiv 2507.18071), every agent alone."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, TwiceTheRollouts, own_term
from hacrl.recipe.method import register
from hacrl.recipe.settings import Count
from hacrl.sharing import LossTerm


@register
class Gspo(GspoOnOwn, TwiceTheRollouts):
    """Own responses, compared with their own group; the ratio of whole responses is clipped."""

    name: Literal["gspo", "gspo_x2"] = "gspo"
    """`gspo`, or `gspo_x2` with twice the rollouts."""
    epochs: Count = 1
    """Passes over a step's responses."""

    shares: ClassVar[bool] = False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Twice the rollouts are twice the mini-batches: the size of a mini-batch stays the same."""
        return mini_batches * self.rollout_factor(agents) * self.epochs

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The same in every epoch; the ratio stays the one to the policy that drew the responses."""
        return [replace(own_term(view, self.own_objective), passes=self.epochs)]
