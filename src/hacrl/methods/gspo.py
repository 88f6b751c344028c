"""GSPO (arXiv 2507.18071), every agent alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hacrl.methods.base import View
from hacrl.methods.common import Alone, GspoOnOwn, MorePrompts, TwiceTheRollouts, own_term
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Gspo(GspoOnOwn, TwiceTheRollouts, MorePrompts, Alone):
    """Own responses, compared with their own group; the ratio of whole responses is clipped."""

    name: Literal["gspo", "gspo_x2"] = "gspo"
    """`gspo`, or `gspo_x2` with twice the rollouts."""

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The same in every epoch; the ratio stays the one to the policy that drew the responses."""
        return [replace(own_term(view, self.own_objective), passes=self.epochs)]
