"""Commons: agents respond to prompts of their own, and all imitate what was verified and passes a gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OwnPrompts, distinct, imitation_term, own_term
from hacrl.methods.pool import PASSES
from hacrl.recipe.method import register
from hacrl.recipe.problems import Problem
from hacrl.recipe.settings import Count, Share
from hacrl.sharing import LossTerm
from hacrl.symptoms import Symptom

if TYPE_CHECKING:
    from hacrl.recipe import Recipe

FEW = 2.0
"""Prompts of a kind at which half of a lead is believed."""


@register
class Commons(GspoOnOwn, OwnPrompts):
    """GSPO on own responses, then the distinct verified responses of all are imitated, own ones included.

    A peer's success is news where the learner has not tried: so no two agents respond to the same prompt. A
    learner believes only what it has verified itself. And a right response can still do harm: two agents that
    write right responses in different ways would unlearn both. So a gate lets a peer's response through if
    it is familiar to the learner, or if its author is clearly better at this kind of prompt.
    """

    name: Literal["commons"] = "commons"
    """`commons`."""
    passes: Count = PASSES
    """Times a step's verified responses are imitated."""
    margin: Annotated[float, Field(ge=-1, le=1)] = 0.3
    """Lead in the share of right responses to a kind of prompt that lets all of a peer's through."""
    familiar: Share = 0.05
    """Else those as likely as all but this share of the learner's own right responses to that kind."""

    reverifies: ClassVar[bool] = True
    symptoms: ClassVar[tuple[Symptom, ...]] = (
        Symptom(
            "gate/accepted",
            0.05,
            "below",
            "only {value:.1%} of its peers' verified responses pass the gate",
            "They are neither familiar nor of a clearly better author. A smaller method.margin or "
            "method.familiar lets more through; peers that write in quite another style may have nothing to "
            "teach.",
        ),
    )

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Own responses, then every pass over the pool; as many for a pool of few peers."""
        return mini_batches * (1 + (agents - 1) * self.passes)

    def problems(self, recipe: Recipe) -> Iterator[Problem]:
        """What comes late is a pool of its own, which needs updates of its own."""
        yield from super().problems(recipe)
        late = recipe.exchange.asynchronous is not None
        if late and recipe.updates.mini_batches < 2 and len(recipe.agents) > 1:
            yield Problem(
                "updates.mini_batches",
                "expected at least 2 with method commons and exchange.asynchronous, got 1: what is imitated "
                "comes in parts, and each needs an update",
            )

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses, then the pool; an agent without peers has GSPO alone.

        Responses that come later are a pool of their own, with their share of the updates.
        """
        own = own_term(view, self.own_objective)
        if len(view.table.agents) == 1:
            return [own]
        pool = self.accepted(view, distinct(view.table, view.verified)) & view.new
        return [own, imitation_term(view, pool, view.due(view.peer_updates), self.passes)]

    def accepted(self, view: View, pool: Tensor) -> Tensor:
        """[j, b, i]: of the verified responses in `pool`, its own and the new ones it takes from peers."""
        own = pool & view.own
        received = pool & ~own & view.new
        better = received & (leads(view) >= self.margin)[:, :, None]
        return own | better | (received & ~better & self._recognised(view, own, received & ~better))

    def _recognised(self, view: View, own: Tensor, asked: Tensor) -> Tensor:
        """[j, b, i]: familiar ones, compared with own right responses to the same kind; without any, none."""
        if not bool(asked.any()):
            return asked
        likelihood = view.likelihood(own | asked)
        found = torch.zeros_like(asked)
        for here in _kinds(view):
            mine = likelihood[own & here[None, :, None]]
            if len(mine):
                found |= here[None, :, None] & (likelihood >= mine.quantile(self.familiar))
        return found

    def metrics(self, view: View, terms: Sequence[LossTerm]) -> dict[str, float]:
        """How many of its peers' distinct verified responses the learner takes."""
        offered = distinct(view.table, view.verified) & view.peers & view.new
        if len(terms) < 2 or not bool(offered.any()):
            return {}
        taken = terms[1].mask & offered
        return {"gate/accepted": int(taken.sum()) / int(offered.sum()), "gate/offered": int(offered.sum())}


def leads(view: View) -> Tensor:
    """[j, b]: by how much source j is better than the learner at prompts of the kind of prompt b.

    The difference in the share of right responses, averaged over the prompts of the kind; shrunk towards 0
    when one of the two responded to few of them.
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
