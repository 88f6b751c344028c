"""Commons: agents respond to prompts of their own and imitate all verified responses that pass a gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OwnPrompts, distinct, imitation_term, own_term
from hacrl.methods.pool import PASSES
from hacrl.recipe.fields import Count, Share
from hacrl.recipe.method import register
from hacrl.recipe.problems import Problem
from hacrl.sharing import LossTerm
from hacrl.symptoms import Symptom

if TYPE_CHECKING:
    from hacrl.recipe import Recipe


@register
class Commons(GspoOnOwn, OwnPrompts):
    """GSPO on own responses, then the distinct verified responses of all are imitated, own ones included.

    A peer's success adds most where the learner has not tried, so no two agents get the same prompt. The
    learner verifies peers' responses itself. Right responses can still do harm: if two agents write them in
    different styles, imitation makes both worse. So a gate accepts a peer's response only if the learner
    finds it likely enough, or if it is needed: the learner would probably fail at the prompt, and the peer is
    clearly better there. Who is good at which prompts is learned from outcomes (`ContextualCapability`).
    """

    name: Literal["commons"] = "commons"
    """`commons`."""
    passes: Count = PASSES
    """Times a step's verified responses are imitated."""
    gate: bool = True
    """Whether peers' verified responses have to be familiar or needed; otherwise all are imitated."""
    familiar: Share = 0.05
    """A response passes if it is above this quantile of the likelihood of own right responses ..."""
    confidence: Share = 0.95
    """... or if the learner would probably fail, and the peer is better with this probability."""
    mastered: Share = 1.0
    """Peers' responses are not taken where the learner's chance of success is above this."""

    reverifies: ClassVar[bool] = True
    needs_logps: ClassVar[bool] = False
    symptoms: ClassVar[tuple[Symptom, ...]] = (
        Symptom(
            "gate/accepted",
            0.05,
            "below",
            "only {value:.1%} of its peers' verified responses pass the gate",
            "The learner finds them unlikely, and does not need them: it succeeds where they do. A smaller "
            "method.familiar accepts more, which may not help with peers of a very different style.",
        ),
    )

    @property
    def contextual(self) -> bool:
        """The gate needs to know who is good at which prompts."""
        return self.gate

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
        if not self.gate or not bool(received.any()):
            return own | received
        if view.belief is not None:
            received &= (view.belief.mean[view.k] <= self.mastered)[None, :, None]
        needed = received & self.needed(view)[:, :, None]
        return own | needed | self._familiar(view, own, received & ~needed)

    def needed(self, view: View) -> Tensor:
        """[j, b]: the learner's whole group would probably fail, and agent j is probably better."""
        if view.belief is None:
            return torch.zeros(view.table.mask.shape[:2], dtype=torch.bool)
        samples = max(1, int(view.own.sum(2).max()))
        helpless = (1 - view.belief.mean[view.k]) ** samples > 0.5
        return helpless & (view.belief.better(view.k) >= self.confidence)

    def _familiar(self, view: View, own: Tensor, asked: Tensor) -> Tensor:
        """[j, b, i]: those as likely as the learner's own right responses; none without any."""
        if not bool(asked.any()) or not bool(own.any()):
            return torch.zeros_like(asked)
        likelihood = view.likelihood(own | asked)
        return asked & (likelihood >= likelihood[own].quantile(self.familiar))

    def metrics(self, view: View, terms: Sequence[LossTerm]) -> dict[str, float]:
        """How many of its peers' distinct verified responses pass the gate, and how many as needed ones."""
        offered = distinct(view.table, view.verified) & view.peers & view.new
        if len(terms) < 2 or not bool(offered.any()):
            return {}
        taken, count = terms[1].mask & offered, int(offered.sum())
        needed = taken & self.needed(view)[:, :, None]
        return {
            "gate/accepted": int(taken.sum()) / count,
            "gate/needed": int(needed.sum()) / count,
            "gate/offered": count,
        }
