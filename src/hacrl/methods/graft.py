"""Our reading of GRAFT (arXiv 2609.37868): a peer's group replaces the learner's where that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from hacrl.algorithm import AdmittedObjective
from hacrl.defaults import GRAFT_FLOOR
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, group_advantages, own_term
from hacrl.recipe.fields import Share
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Graft(GspoOnOwn):
    """Groups that failed are replaced by mixed groups of peers, equally many both ways."""

    name: Literal["graft"] = "graft"
    """`graft`: our reading of GRAFT."""
    floor: Share = GRAFT_FLOOR
    """Peers' responses count if their ratio is above this."""

    needs_all_peers: ClassVar[str | None] = "puts peers' responses in the place of own ones"

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """A group is replaced once at most, however many peers there are."""
        return mini_batches * (2 if peers else 1)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own groups that were not replaced, then the peers' groups, with the peers' own advantages.

        The second term has as many updates as keep the size of a mini-batch.
        """
        grafts = self.grafts(view)
        own = own_term(view, self.own_objective)
        kept = replace(own, mask=own.mask & ~grafts.any(0)[None, :, None])
        share = float(grafts.any(0).sum()) / max(1, int(own.mask.any(2).sum()))
        peers = LossTerm(
            AdmittedObjective(self.floor),
            group_advantages(view),
            view.peers & grafts[:, :, None],
            view.equal_weights,
            updates=max(1, round(view.mini_batches * share)),
        )
        return [kept, peers]

    def grafts(self, view: View) -> Tensor:
        """[j, b]: whose group replaces the learner's; of several peers the one with most right responses."""
        right, responses = view.verified.sum(2), view.table.mask.sum(2)
        chosen = torch.zeros_like(right, dtype=torch.bool)
        offered = {
            j: balanced(right[view.k], right[j], responses[view.k], responses[j])
            for j in range(len(view.table.agents))
            if j != view.k
        }
        for b in range(right.shape[1]):
            givers = [j for j, offers in offered.items() if offers[b]]
            if givers:
                chosen[min(givers, key=lambda j: (-int(right[j, b]), view.table.agents[j])), b] = True
        return chosen


def balanced(mine: Tensor, theirs: Tensor, my_responses: Tensor, their_responses: Tensor) -> Tensor:
    """[b] bool: the prompts a peer gives its group for, from both sides' numbers of right responses.

    Both directions get the same number; of more candidates those with most right responses, ties included.
    """
    gives = (mine == 0) & (my_responses > 0) & (theirs > 0) & (theirs < their_responses)
    gets = (theirs == 0) & (their_responses > 0) & (mine > 0) & (mine < my_responses)
    number = min(int(gives.sum()), int(gets.sum()))
    if number == 0:
        return torch.zeros_like(gives)
    return gives & (theirs >= theirs[gives].sort(descending=True).values[number - 1])
