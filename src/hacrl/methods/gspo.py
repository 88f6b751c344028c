"""Every agent alone: GSPO, GRPO, twice the rollouts, several epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hacrl.algorithm import GrpoObjective, GspoObjective, Objective, own_advantages
from hacrl.methods.base import Method, View
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Alone(Method):
    """The learner's own answers, compared with its own group."""

    name: str
    objective: Objective
    rollout_factor: int = 1
    epochs: int = 1
    """Passes over a step's answers."""

    def lessons(self, view: View) -> list[LossTerm]:
        """The same in every epoch; the ratio stays the one to the policy that drew the answers."""
        return [replace(own_term(view, self.objective), passes=self.epochs)]


def own_term(view: View, objective: Objective) -> LossTerm:
    """The learner's own answers with its own group's mean and spread."""
    advantages, _ = own_advantages(view.table.rewards, mask=view.table.mask)
    return LossTerm(objective, advantages[view.k], view.own, view.equal_weights)


def gspo(clip_low: float = 3e-4, clip_high: float = 4e-4, epochs: int = 1) -> Alone:
    """Every agent alone with GSPO."""
    return Alone("gspo", GspoObjective(clip_low, clip_high), epochs=epochs)


def gspo_x2(clip_low: float = 3e-4, clip_high: float = 4e-4, epochs: int = 1) -> Alone:
    """Every agent alone with GSPO and twice the rollouts."""
    return Alone("gspo_x2", GspoObjective(clip_low, clip_high), rollout_factor=2, epochs=epochs)


def grpo(clip_low: float = 0.2, clip_high: float = 0.28, epochs: int = 1) -> Alone:
    """Every agent alone with GRPO."""
    return Alone("grpo", GrpoObjective(clip_low, clip_high), epochs=epochs)
