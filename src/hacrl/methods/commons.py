"""Commons: agents respond to prompts of their own and imitate all verified responses that pass a gate."""

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
"""With so many prompts of a kind, a lead counts half; with more, more of it."""


@register
class Commons(GspoOnOwn, OwnPrompts):
    """GSPO on own responses, then the distinct verified responses of all are imitated, own ones included.

    A peer's success adds most where the learner has not tried, so no two agents get the same prompt. The
    learner verifies peers' responses itself. Right responses can still do harm: if two agents write them in
    different styles, imitation makes both worse. So a gate accepts a peer's response only if the learner
    finds it likely enough, or if the peer is clearly better at this kind of prompt.
    """

    name: Literal["commons"] = "commons"
    """`commons`."""
    passes: Count = PASSES
    """Times a step's verified responses are imitated."""
    margin: Annotated[float, Field(ge=-1, le=1)] = 0.3
    """A peer ahead by this much in its share of right responses to a kind of prompt passes the gate."""
    familiar: Share = 0.05
    """Otherwise a response passes if it is above this quantile of the likelihood of own right responses."""

    reverifies: ClassVar[bool] = True
    symptoms: ClassVar[tuple[Symptom, ...]] = (
        Symptom(
            "gate/accepted",
            0.05,
            "below",
            "only {value:.1%} of its peers' verified responses pass the gate",
            "The learner finds them unlikely, and the peers are not clearly better. A smaller method.margin "
            "or method.familiar accepts more, which may not help with peers of a very different style.",
        ),
    )

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Own responses, then every pass over the pool; the number does not depend on `peers`."""
        return mini_batches * (1 + (agents - 1) * self.passes)

    def problems(self, recipe: Recipe) -> Iterator[Problem]:
        """Late responses are a pool of their own, which needs updates of its own."""
        yield from super().problems(recipe)
        late = recipe.exchange.asynchronous is not None
        if late and recipe.updates.mini_batches < 2 and len(recipe.agents) > 1:
            yield Problem(
                "updates.mini_batches",
                "expected at least 2 with method commons and exchange.asynchronous, got 1: the pool "
                "comes in parts, and each needs an update",
            )

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses, then the pool; an agent without peers has GSPO alone.

        Responses that arrive later are a pool of their own, with their share of the updates.
        """
        own = own_term(view, self.own_objective)
        if len(view.table.agents) == 1:
            return [own]
        pool = self.accepted(view, distinct(view.table, view.verified)) & view.new
        return [own, imitation_term(view, pool, view.due(view.peer_updates), self.passes)]

    def accepted(self, view: View, pool: Tensor) -> Tensor:
        """[j, b, i]: of the verified responses in `pool`, its own and peers' new ones that pass the gate."""
        own = pool & view.own
        received = pool & ~own & view.new
        better = received & (leads(view) >= self.margin)[:, :, None]
        return own | better | (received & ~better & self._recognised(view, own, received & ~better))

    def _recognised(self, view: View, own: Tensor, asked: Tensor) -> Tensor:
        """[j, b, i]: those as likely as own right responses to the same kind; none without any."""
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
        """How many of its peers' distinct verified responses pass the gate."""
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
