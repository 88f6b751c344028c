"""GRPO (arXiv 2402.03300), every agent alone."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from hacrl.algorithm import GrpoObjective
from hacrl.defaults import GRPO_CLIP_HIGH, GRPO_CLIP_LOW
from hacrl.methods.base import View
from hacrl.methods.common import Alone, own_term
from hacrl.recipe.fields import AtLeast0, Share
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Grpo(Alone):
    """Own responses, compared with their own group; the ratio of each token is clipped."""

    name: Literal["grpo"] = "grpo"
    """`grpo`."""
    clip_low: Share = GRPO_CLIP_LOW
    """Clip of the ratio of each token below 1."""
    clip_high: AtLeast0 = GRPO_CLIP_HIGH
    """Clip of the ratio of each token above 1."""

    differs_alone: ClassVar[str] = "it clips the ratio of each token, not of the response"

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The same in every epoch; the ratio stays the one to the policy that drew the responses."""
        objective = GrpoObjective(self.clip_low, self.clip_high)
        return [replace(own_term(view, objective), passes=self.epochs)]
