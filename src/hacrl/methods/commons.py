"""Commons: every agent works on prompts of its own, and what is verified belongs to all."""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.algorithm import GspoObjective
from hacrl.methods.base import View
from hacrl.methods.divided import Divided
from hacrl.methods.gate import Gate
from hacrl.methods.gspo import own_term
from hacrl.methods.pooled import PASSES, distinct, imitation_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Commons(Divided):
    """GSPO on own answers, then the distinct verified answers of all imitated, own ones included.

    A peer's success is news where the learner has not tried: so no two agents answer the same prompt. A
    learner believes only what it has verified itself, and a gate decides what it takes from peers.
    """

    objective: GspoObjective
    passes: int
    gate: Gate
    name: str = "commons"
    reverifies: bool = True

    def lessons(self, view: View) -> list[LossTerm]:
        """Own answers, then the pool; an agent without peers has GSPO alone.

        Answers that come later are a pool of their own, with their share of the updates.
        """
        own = own_term(view, self.objective)
        if len(view.table.agents) == 1:
            return [own]
        pool = self.gate.accepted(view, distinct(view.table, view.verified)) & view.new
        return [own, imitation_term(view, pool, view.due(view.peer_updates), self.passes)]


def commons(
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    passes: int = PASSES,
    margin: float = 0.3,
    familiar: float = 0.05,
) -> Commons:
    """Division of labour with a pool of verified answers."""
    return Commons(GspoObjective(clip_low, clip_high), passes, Gate(margin, familiar))
