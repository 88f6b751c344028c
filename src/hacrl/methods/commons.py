"""Commons: every agent works on prompts of its own, and what is verified belongs to all."""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.algorithm import GspoObjective
from hacrl.exchange import Lesson
from hacrl.methods.alone import own_lesson
from hacrl.methods.base import View
from hacrl.methods.divided import Divided
from hacrl.methods.pooled import distinct, pool_lesson


@dataclass(frozen=True)
class Commons(Divided):
    """GSPO on own answers, then everybody's distinct verified answers imitated, own ones included.

    A peer's success is news where the learner has not tried: so no two agents answer the same prompt.
    """

    objective: GspoObjective
    name: str = "commons"

    def lessons(self, view: View) -> list[Lesson]:
        """Own answers, then the pool; an agent without peers has GSPO alone."""
        own = own_lesson(view, self.objective)
        if len(view.table.agents) == 1:
            return [own]
        return [own, pool_lesson(view, distinct(view.table, view.verified), view.peer_updates)]


def commons(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Commons:
    """Division of labour with a pool of verified answers."""
    return Commons(GspoObjective(clip_low, clip_high))
