"""On-policy distillation: the strongest agent scores everybody's own responses; it learns alone."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch

from hacrl.algorithm import DistillationObjective
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, UsesOmega, own_term, strongest
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


class Taught(GspoOnOwn, UsesOmega):
    """Methods in which agents learn from those that are better."""

    needs_logps: ClassVar[bool] = False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many updates from teachers as other methods make on all peers' responses."""
        return mini_batches * (agents if peers else 1)


@register
class Opd(Taught):
    """GSPO on own responses, then distillation on them from the strongest agent's token probabilities."""

    name: Literal["opd"] = "opd"
    """`opd`: the strongest agent scores own responses, token by token."""

    needs_scores: ClassVar[bool] = True
    needs_all_peers: ClassVar[str | None] = "lets the strongest agent judge, as it was before the step"

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The second term is everybody's but the strongest agent's; no reward enters it."""
        own, teacher = own_term(view, self.own_objective), strongest(view)
        if teacher == view.k:
            return [own]
        distilled = replace(
            own,
            objective=DistillationObjective(),
            advantages=torch.ones_like(own.advantages),
            updates=view.peer_updates,
            scorer=view.table.agents[teacher],
        )
        return [own, distilled]
