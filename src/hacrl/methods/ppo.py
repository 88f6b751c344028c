"""PPO with a critic, every agent alone."""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.algorithm import CriticParams, PpoObjective
from hacrl.methods.base import Method, View
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Ppo(Method):
    """The learner's own answers, each token compared with what its critic expected."""

    objective: PpoObjective
    critic: CriticParams
    epochs: int = 1
    """Passes over a step's answers."""
    name: str = "ppo"

    def lessons(self, view: View) -> list[LossTerm]:
        """The plain rewards of own answers: the critic makes advantages of them, token by token."""
        rewards = view.table.rewards
        return [LossTerm(self.objective, rewards, view.own, view.equal_weights, passes=self.epochs)]


def ppo(
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    epochs: int = 1,
    gamma: float = 1.0,
    lam: float = 1.0,
    value_clip: float = 0.5,
    critic_learning_rate: float | None = None,
) -> Ppo:
    """Every agent alone with PPO and a critic of its own."""
    critic = CriticParams(gamma, lam, value_clip, critic_learning_rate)
    return Ppo(PpoObjective(clip_low, clip_high), critic, epochs)
