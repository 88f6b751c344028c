"""GRAFT: a peer's whole group in the place of one's own where the learner had no success."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hacrl.algorithm import AdmittedObjective, GspoObjective
from hacrl.methods.base import Method, View
from hacrl.methods.common import group_advantages
from hacrl.methods.gspo import own_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Graft(Method):
    """Groups that failed are replaced by mixed groups of peers, equally many both ways (arXiv 2609.37868)."""

    own: GspoObjective
    shared: AdmittedObjective
    name: str = "graft"

    def lessons(self, view: View) -> list[LossTerm]:
        """Own groups that were not replaced, then the peers' groups, with the peers' own advantages.

        The second lesson has as many updates as keep the size of a mini-batch.
        """
        grafts = self.grafts(view)
        own = own_term(view, self.own)
        kept = replace(own, mask=own.mask & ~grafts.any(0)[None, :, None])
        share = float(grafts.any(0).sum()) / max(1, int(own.mask.any(2).sum()))
        peers = LossTerm(
            self.shared,
            group_advantages(view),
            view.peers & grafts[:, :, None],
            view.equal_weights,
            updates=max(1, round(view.mini_batches * share)),
        )
        return [kept, peers]

    def grafts(self, view: View) -> Tensor:
        """[j, b]: whose group replaces the learner's; of several peers the one with most right answers."""
        right, answers = view.verified.sum(2), view.table.mask.sum(2)
        chosen = torch.zeros_like(right, dtype=torch.bool)
        offered = {
            j: balanced(right[view.k], right[j], answers[view.k], answers[j])
            for j in range(len(view.table.agents))
            if j != view.k
        }
        for b in range(right.shape[1]):
            givers = [j for j, offers in offered.items() if offers[b]]
            if givers:
                chosen[min(givers, key=lambda j: (-int(right[j, b]), view.table.agents[j])), b] = True
        return chosen


def balanced(mine: Tensor, theirs: Tensor, my_answers: Tensor, their_answers: Tensor) -> Tensor:
    """[b] bool: the prompts a peer gives its group for, from both sides' numbers of right answers.

    Neither gives more than it could get; of more candidates those with most right answers, ties included.
    """
    gives = (mine == 0) & (my_answers > 0) & (theirs > 0) & (theirs < their_answers)
    gets = (theirs == 0) & (their_answers > 0) & (mine > 0) & (mine < my_answers)
    number = min(int(gives.sum()), int(gets.sum()))
    if number == 0:
        return torch.zeros_like(gives)
    return gives & (theirs >= theirs[gives].sort(descending=True).values[number - 1])


def graft(clip_low: float = 3e-4, clip_high: float = 4e-4, floor: float = 0.8) -> Graft:
    """Balanced replacement of failed groups."""
    return Graft(GspoObjective(clip_low, clip_high), AdmittedObjective(floor))
