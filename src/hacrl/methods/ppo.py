"""PPO (arXiv 1707.06347), every agent alone with a critic of its own."""

from __future__ import annotations

from typing import ClassVar, Literal

from hacrl.algorithm import CriticParams, PpoObjective
from hacrl.defaults import PPO_CLIP_HIGH, PPO_CLIP_LOW
from hacrl.methods.base import View
from hacrl.methods.common import Alone
from hacrl.recipe.fields import AtLeast0, LearningRate, Share
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm

USUAL = CriticParams()


@register
class Ppo(Alone):
    """Own responses, each token compared with what the agent's critic expected."""

    name: Literal["ppo"] = "ppo"
    """`ppo`: a second model per agent, its critic, has to fit into memory too."""
    clip_low: Share = PPO_CLIP_LOW
    """Clip of the ratio of each token below 1."""
    clip_high: AtLeast0 = PPO_CLIP_HIGH
    """Clip of the ratio of each token above 1."""
    gamma: Share = USUAL.gamma
    """Discount of the reward per token."""
    lam: Share = USUAL.lam
    """Lambda of the advantage estimate: 1 trusts the final reward only, 0 the critic's next value only."""
    value_clip: AtLeast0 = USUAL.value_clip
    """How far one step moves the critic's values."""
    critic_learning_rate: LearningRate | None = USUAL.learning_rate
    """Of the critic; null takes ten times the agent's own."""

    differs_alone: ClassVar[str] = "its advantages come from a critic"

    @property
    def critic(self) -> CriticParams:
        """What the agents' critics are made with."""
        return CriticParams(self.gamma, self.lam, self.value_clip, self.critic_learning_rate)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The plain rewards of own responses: the critic turns them into advantages, token by token."""
        objective = PpoObjective(self.clip_low, self.clip_high)
        return [LossTerm(objective, view.table.rewards, view.own, view.equal_weights, passes=self.epochs)]
