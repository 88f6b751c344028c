"""Which verified answers of its peers a learner imitates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.methods.base import View

FEW = 2.0
"""Prompts of a kind at which half of a lead is believed."""


@dataclass(frozen=True)
class Gate:
    """A right answer can still do harm: two agents that write right answers in different ways unlearn both.

    So a peer's answer is taken if it is familiar, or if its author is clearly better at this kind of prompt.
    """

    margin: float = 0.3
    """Lead in the share of right answers, from which on a peer's way of answering is learned."""
    familiar: float = 0.05
    """An answer is familiar if the learner finds it no less likely than this share of its own right ones."""

    def accepted(self, view: View, pool: Tensor) -> Tensor:
        """[j, b, i]: of the verified answers in `pool`, its own and the new ones it takes from peers."""
        own = pool & view.own
        heard = pool & ~own & view.new
        better = heard & (leads(view) >= self.margin)[:, :, None]
        return own | better | (heard & ~better & self._recognised(view, own, heard & ~better))

    def _recognised(self, view: View, own: Tensor, asked: Tensor) -> Tensor:
        """[j, b, i]: compared with own right answers to prompts of the same kind; without any, nothing is."""
        if not bool(asked.any()):
            return asked
        likelihood = view.likelihood(own | asked)
        found = torch.zeros_like(asked)
        for here in _kinds(view):
            mine = likelihood[own & here[None, :, None]]
            if len(mine):
                found |= here[None, :, None] & (likelihood >= mine.quantile(self.familiar))
        return found


def leads(view: View) -> Tensor:
    """[j, b]: by how much source j is better than the learner at prompts of the kind of prompt b.

    The difference in the share of right answers, averaged over the prompts of the kind; shrunk towards 0 when
    one of the two answered few of them.
    """
    mask, found = view.table.mask, torch.zeros(view.table.mask.shape[:2], dtype=torch.float64)
    tried = mask.any(2)
    share = view.verified.sum(2) / mask.sum(2).clamp(min=1).double()
    for here in _kinds(view):
        prompts = (tried & here).sum(1)
        rate = (share * here).sum(1) / prompts.clamp(min=1)
        both = torch.minimum(prompts, prompts[view.k])
        lead = (rate - rate[view.k]) * both / (both + FEW)
        found += lead[:, None] * here
    return found


def _kinds(view: View) -> list[Tensor]:
    """[b] bool for every kind of prompt: those of that kind."""
    kinds = view.kinds or [""] * len(view.table.prompt_ids)
    return [torch.tensor([kind == one for kind in kinds]) for one in sorted(set(kinds))]
