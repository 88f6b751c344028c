"""Our reading of F-TIS (arXiv 2605.22537): peers' responses, truncated ratios, distant failures dropped."""

from __future__ import annotations

from typing import Literal

from hacrl.algorithm import TruncatedObjective
from hacrl.defaults import FTIS_KL_LIMIT, FTIS_TRUNCATION
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OwnPrompts, group_advantages, own_term
from hacrl.recipe.fields import Above0, AtLeast0
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Ftis(GspoOnOwn, OwnPrompts):
    """Agents respond to prompts of their own; whole groups are exchanged (the paper's "vertical")."""

    name: Literal["ftis"] = "ftis"
    """`ftis`: our reading of F-TIS."""
    truncation: Above0 = FTIS_TRUNCATION
    """Largest importance weight of a token of a peer's response."""
    kl_limit: AtLeast0 = FTIS_KL_LIMIT
    """Peers' responses with a negative advantage are dropped from this divergence on, in nats."""

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses, then every peer's, compared with the peer's own group."""
        objective = TruncatedObjective(self.truncation, self.kl_limit)
        peers = LossTerm(objective, group_advantages(view), view.peers, view.equal_weights)
        return [own_term(view, self.own_objective), peers]
