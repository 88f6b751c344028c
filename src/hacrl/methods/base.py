"""What a method decides: who answers which prompts, and what a learner makes of everybody's answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm import CriticParams
from hacrl.sharing import LossTerm, RewardTable
from hacrl.types import Prompt


def _unknown(chosen: Tensor) -> Tensor:
    return torch.full(chosen.shape, math.nan, dtype=torch.float64)


@dataclass(frozen=True)
class View:
    """What one learner knows in a step: its own answers and those it hears."""

    learner: str
    table: RewardTable
    omega: Tensor
    """[k, j]: learner over source, everywhere."""
    reward_max: float
    mini_batches: int
    """Updates that are made on one source's answers."""
    kinds: Sequence[str] = ()
    """[b]: the kind of every prompt; empty: all are of one kind."""
    likelihood: Callable[[Tensor], Tensor] = _unknown
    """Of the answers in a mask [j, b, i], the learner's mean log-prob per token before the step; NaN
    elsewhere and where it cannot read them. Peers' answers cost the learner a forward pass."""
    taught: frozenset[str] = frozenset()
    """Agents whose answers the learner has learned from already, when it did not wait for all of them: these
    are compared with the others, but not learned again."""
    awaited: frozenset[str] = frozenset()
    """Agents whose answers it will hear later."""

    @property
    def k(self) -> int:
        """The learner's place among the agents."""
        return self.table.agents.index(self.learner)

    @property
    def own(self) -> Tensor:
        """[j, b, i] bool: the learner's own answers that could be scored."""
        mine = torch.zeros_like(self.table.mask)
        mine[self.k] = self.table.mask[self.k]
        return mine

    @property
    def peers(self) -> Tensor:
        """[j, b, i] bool: the answers of others that the learner hears."""
        return self.table.mask & ~self.own

    @property
    def verified(self) -> Tensor:
        """[j, b, i] bool: answers with the full reward."""
        return self.table.mask & (self.table.rewards >= self.reward_max)

    @property
    def new(self) -> Tensor:
        """[j, 1, 1] bool: the agents whose answers are learned from now; everybody's if nobody is late."""
        return torch.tensor([agent not in self.taught for agent in self.table.agents])[:, None, None]

    @property
    def equal_weights(self) -> Tensor:
        """[j] ones."""
        return torch.ones(len(self.table.agents), dtype=self.table.rewards.dtype)

    @property
    def peer_updates(self) -> int:
        """Updates a sharing method makes on peers' answers: controls make as many without peers."""
        return self.mini_batches * (len(self.table.agents) - 1)

    def due(self, updates: int) -> int:
        """Of so many updates on everybody's answers those on the new ones, an equal share for every agent.

        Over all times at which the learner hears of the step they add up to `updates`.
        """
        present = {
            agent for agent, groups in zip(self.table.agents, self.table.samples, strict=True) if any(groups)
        }
        heard = present | self.taught
        everybody = max(1, len(heard | self.awaited))
        return updates * len(heard) // everybody - updates * len(self.taught) // everybody


class Method(ABC):
    """How agents learn from a step's answers."""

    name: str
    rollout_factor: int = 1
    """How many times the recipe's samples per prompt are drawn."""
    one_tokenizer: bool = False
    """Whether agents read each other's tokens, so that all need the same tokenizer."""
    reverifies: bool = False
    """Whether a learner scores its peers' answers again, unless the recipe says otherwise."""
    critic: CriticParams | None = None
    """The settings of the critic every agent needs; None: none is needed."""

    def prompts_drawn(self, prompts_per_step: int, agents: int) -> int:
        """Prompts of a step when every agent answers `prompts_per_step` of them: the same for all."""
        return prompts_per_step

    def assign(self, prompts: Sequence[Prompt], agents: Sequence[str]) -> dict[str, list[Prompt]]:
        """Which of the step's prompts each agent answers: all of them."""
        return {agent: list(prompts) for agent in agents}

    @abstractmethod
    def lessons(self, view: View) -> list[LossTerm]:
        """What one learner does in this step, in order."""
