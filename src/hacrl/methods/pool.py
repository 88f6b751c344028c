"""Own pool, the control of `commons`: the same imitation with nothing shared."""

from __future__ import annotations

from typing import ClassVar, Literal

from hacrl.methods.base import View
from hacrl.methods.common import (
    GspoOnOwn,
    MorePrompts,
    TwiceTheRollouts,
    distinct,
    imitation_term,
    own_term,
)
from hacrl.recipe.fields import Count
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm

PASSES = 4
"""Times a step's pool is imitated, in `commons` as well."""


@register
class OwnPool(GspoOnOwn, TwiceTheRollouts, MorePrompts):
    """GSPO, then own distinct right responses are imitated as `commons` imitates everybody's."""

    name: Literal["pool", "pool_x2"] = "pool"
    """`pool`, or `pool_x2` with twice the rollouts."""
    passes: Count = PASSES
    """Times a step's verified responses are imitated."""

    shares: ClassVar[bool] = False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as `commons` makes, times the samples; more prompts are only more updates of GSPO."""
        pooled = (agents - 1) * self.passes
        return mini_batches * (self.prompts_each(1, agents) + pooled) * self.rollout_factor(agents)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses, then the distinct ones among them that were right."""
        own = distinct(view.table, view.own & view.verified)
        updates = view.peer_updates * self.rollout_factor(len(view.table.agents))
        return [own_term(view, self.own_objective), imitation_term(view, own, updates, self.passes)]
