"""On-policy distillation: the strongest agent judges everybody's own answers; it learns alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hacrl.algorithm import DistillationObjective, GspoObjective
from hacrl.methods.base import Method, View
from hacrl.methods.common import strongest
from hacrl.methods.gspo import own_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Opd(Method):
    """GSPO on own answers, then the same answers towards the strongest agent's probability of each token."""

    objective: GspoObjective
    name: str = "opd"
    one_tokenizer: bool = True

    def lessons(self, view: View) -> list[LossTerm]:
        """The second lesson is everybody's but the strongest agent's; no reward enters it."""
        own, teacher = own_term(view, self.objective), strongest(view)
        if teacher == view.k:
            return [own]
        judged = replace(
            own,
            objective=DistillationObjective(),
            advantages=torch.ones_like(own.advantages),
            updates=view.peer_updates,
            scorer=view.table.agents[teacher],
        )
        return [own, judged]


def opd(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Opd:
    """On-policy distillation from the strongest."""
    return Opd(GspoObjective(clip_low, clip_high))
