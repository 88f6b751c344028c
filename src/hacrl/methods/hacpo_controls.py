"""Controls of HACPO: the effect of everything besides learning from peers."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch

from hacrl.algorithm import HacpoObjective
from hacrl.methods.base import View
from hacrl.methods.common import own_term
from hacrl.methods.hacpo import HacpoSettings
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class HacpoMuted(HacpoSettings):
    """HACPO whose peers' responses have gradient 0: what is left are its baseline and empty updates.

    With `optimiser.skip_empty_updates: false`, as in the paper, these follow AdamW's momentum.
    """

    name: Literal["hacpo_muted"] = "hacpo_muted"
    """`hacpo_muted`: peers' responses have updates, but no gradient."""

    def loss_terms(self, view: View) -> list[LossTerm]:
        """HACPO's term with coefficient 0 for every peer."""
        return [
            replace(term, coefficients=torch.zeros_like(term.coefficients))
            for term in super().loss_terms(view)
        ]


@register
class HacpoCopies(HacpoSettings):
    """HACPO with copies of the learner as peers: as many as there are peers, always with its weights.

    A copy's responses are further responses of the learner itself: every agent pays for its peers' rollouts.
    """

    name: Literal["hacpo_copies"] = "hacpo_copies"
    """`hacpo_copies`: copies of the agent itself in the place of its peers."""

    shares: ClassVar[bool] = False

    def rollout_factor(self, agents: int) -> int:
        """A copy's responses are drawn by the agent itself."""
        return agents

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as with peers."""
        return mini_batches * agents

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The first share of the responses is the learner's own, the others are treated as peers'."""
        term = own_term(view, self.objective)
        sample = torch.arange(term.mask.shape[2])
        own = term.mask & (sample < term.mask.shape[2] // len(view.table.agents))
        copies = HacpoObjective(self.params, all_peers=True)
        return [
            replace(term, mask=own, updates=view.mini_batches),
            replace(term, mask=term.mask & ~own, objective=copies, updates=view.peer_updates),
        ]
