"""Success-gated transfer: a peer's verified answer where the learner's whole group failed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hacrl.algorithm import GspoObjective, LikelihoodObjective, SplitObjective
from hacrl.methods.base import Method, View
from hacrl.methods.common import one_each
from hacrl.methods.gspo import own_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class SuccessGated(Method):
    """GSPO on own answers plus `weight` times the log-likelihood of rescuing answers (arXiv 2605.07244)."""

    own: GspoObjective
    weight: float
    name: str = "sgt"

    def lessons(self, view: View) -> list[LossTerm]:
        """One lesson: the two terms of the loss belong to the same update, or the weight would mean nothing.

        An update takes the mean over all its rows; the peers' weight makes that of the two terms
        mean(own) + weight * mean(rescued), but for a factor that both share.
        """
        own, rescuers = own_term(view, self.own), self.rescuers(view)
        if not rescuers.any():
            return [own]
        weight = self.weight * int(own.mask.sum()) / int(rescuers.sum())
        lesson = replace(
            own,
            objective=SplitObjective(self.own, LikelihoodObjective()),
            advantages=torch.where(rescuers, weight, own.advantages),
            mask=own.mask | rescuers,
            updates=view.mini_batches,
            complete=True,
        )
        return [lesson]

    def rescuers(self, view: View) -> Tensor:
        """[j, b, i]: one verified answer of a peer for every prompt the learner tried in vain."""
        tried, solved = (some.any(2).any(0) for some in (view.own, view.own & view.verified))
        failed = (tried & ~solved)[None, :, None]
        return one_each(view, view.peers & view.verified & failed)


def sgt(clip_low: float = 3e-4, clip_high: float = 4e-4, weight: float = 0.1) -> SuccessGated:
    """Success-gated transfer."""
    return SuccessGated(GspoObjective(clip_low, clip_high), weight)
