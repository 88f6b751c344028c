"""Replay, a control of sharing: own right responses again, in as many updates as peers' would get."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from hacrl.algorithm import SurrogateObjective
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, TwiceTheRollouts, own_term
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Replay(GspoOnOwn, TwiceTheRollouts):
    """GSPO, then own right responses again with their advantage, unclipped."""

    name: Literal["replay", "replay_x2"] = "replay"
    """`replay`, or `replay_x2` with twice the rollouts."""

    shares: ClassVar[bool] = False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as a sharing method would make, times the rollouts."""
        return mini_batches * agents * self.rollout_factor(agents)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses, then those among them that were right."""
        first = own_term(view, self.own_objective)
        again = replace(
            first,
            objective=SurrogateObjective(),
            mask=first.mask & view.verified,
            updates=view.peer_updates * self.rollout_factor(len(view.table.agents)),
        )
        return [first, again]
