"""Our reading of success-gated transfer (arXiv 2605.07244): a verified response where one's own failed."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from hacrl.algorithm import LikelihoodObjective, SplitObjective
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OneUpdatePerMiniBatch, one_each, own_term
from hacrl.recipe.fields import AtLeast0
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class SuccessGated(GspoOnOwn, OneUpdatePerMiniBatch):
    """GSPO on own responses plus `weight` times the log-likelihood of peers' responses."""

    name: Literal["sgt"] = "sgt"
    """`sgt`: our reading of success-gated transfer."""
    weight: AtLeast0 = 0.1
    """Weight of the log-likelihood of peers' verified responses beside the loss of own responses."""

    needs_logps: ClassVar[bool] = False
    needs_all_peers: ClassVar[str | None] = "has peers' responses in the same updates as own ones"

    def loss_terms(self, view: View) -> list[LossTerm]:
        """One term: both parts of the loss belong to the same update, or Adam would undo the weight.

        An update takes the mean over all its rows; with the weight of the peers' rows that is
        mean(own) + weight * mean(peers'), up to a common factor.
        """
        own, rescuers = own_term(view, self.own_objective), self.rescuers(view)
        if not rescuers.any():
            return [own]
        weight = self.weight * int(own.mask.sum()) / int(rescuers.sum())
        term = replace(
            own,
            objective=SplitObjective(self.own_objective, LikelihoodObjective()),
            advantages=torch.where(rescuers, weight, own.advantages),
            mask=own.mask | rescuers,
            updates=view.mini_batches,
            complete=True,
        )
        return [term]

    def rescuers(self, view: View) -> Tensor:
        """[j, b, i]: one verified response of a peer for every prompt that the learner failed."""
        tried, solved = (some.any(2).any(0) for some in (view.own, view.own & view.verified))
        failed = (tried & ~solved)[None, :, None]
        return one_each(view, view.peers & view.verified & failed)
