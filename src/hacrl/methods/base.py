"""The interface of a method: its settings, who responds to which prompts, and each learner's loss terms."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hacrl.algorithm import Belief
from hacrl.recipe.method import MethodSettings
from hacrl.sharing import LossTerm, RewardTable
from hacrl.symptoms import Symptom
from hacrl.types import Prompt


def _unknown(chosen: Tensor) -> Tensor:
    return torch.full(chosen.shape, math.nan, dtype=torch.float64)


@dataclass(frozen=True)
class View:
    """What one learner knows in a step: its own responses and those it received from its peers."""

    learner: str
    table: RewardTable
    omega: Tensor
    """[k, j]: the capability of agent k over that of agent j."""
    reward_max: float
    mini_batches: int
    """Updates made on one source's responses."""
    likelihood: Callable[[Tensor], Tensor] = _unknown
    """Of the responses in a mask [j, b, i], the learner's mean log-prob per token before the step; NaN
    elsewhere and where it cannot encode them. Peers' responses cost the learner a forward pass."""
    trained_on: frozenset[str] = frozenset()
    """Asynchronous runs: agents whose responses of this step the learner has trained on already. They count
    in baselines, but are not trained on again."""
    prompt_omega: Tensor | None = None
    """[k, j, b]: omega at every prompt; None unless the method is `contextual`."""
    belief: Belief | None = None
    """Every agent's chance of success at every prompt, this step's outcomes included; None unless the method
    is `contextual`."""
    awaited: frozenset[str] = frozenset()
    """Asynchronous runs: agents whose responses of this step have not arrived yet."""
    mask_truncated: bool = False
    """Whether responses that were cut off are left out of the loss (`updates.mask_truncated`)."""

    @property
    def k(self) -> int:
        """The learner's index among the agents."""
        return self.table.agents.index(self.learner)

    @property
    def own(self) -> Tensor:
        """[j, b, i] bool: the learner's own responses that could be scored."""
        mine = torch.zeros_like(self.table.mask)
        mine[self.k] = self.table.mask[self.k]
        return mine

    @property
    def peers(self) -> Tensor:
        """[j, b, i] bool: the responses received from peers that could be scored."""
        return self.table.mask & ~self.own

    @property
    def verified(self) -> Tensor:
        """[j, b, i] bool: responses with the full reward."""
        return self.table.mask & (self.table.rewards >= self.reward_max)

    @property
    def trainable(self) -> Tensor:
        """[j, b, i] bool: the scored responses that may be trained on; loss terms are restricted to these.

        Baselines are taken over all scored ones.
        """
        return self.table.mask & ~self.table.truncated if self.mask_truncated else self.table.mask

    @property
    def new(self) -> Tensor:
        """[j, 1, 1] bool: the agents whose responses are trained on now; all in a synchronous step."""
        return torch.tensor([agent not in self.trained_on for agent in self.table.agents])[:, None, None]

    @property
    def equal_weights(self) -> Tensor:
        """[j] ones."""
        return torch.ones(len(self.table.agents), dtype=self.table.rewards.dtype)

    @property
    def peer_updates(self) -> int:
        """Updates a sharing method makes on peers' responses; controls make as many on own ones."""
        return self.mini_batches * (len(self.table.agents) - 1)

    def due(self, updates: int) -> int:
        """How many of `updates` on everybody's responses go to the new ones: an equal share for every agent.

        Over all deliveries of a step's responses, the shares add up to `updates`.
        """
        present = {
            agent for agent, groups in zip(self.table.agents, self.table.samples, strict=True) if any(groups)
        }
        received = present | self.trained_on
        everybody = max(1, len(received | self.awaited))
        return updates * len(received) // everybody - updates * len(self.trained_on) // everybody


class Method(MethodSettings):
    """How agents learn from a step's responses. Its fields are its keys in a recipe.

    A new method is a subclass with `loss_terms` and whatever differs from the defaults here and in
    `MethodSettings`. `docs/own.md` has a complete example.
    """

    differs_alone: ClassVar[str] = ""
    """Why a single agent does not train exactly as with GSPO; empty: it does."""
    symptoms: ClassVar[tuple[Symptom, ...]] = ()
    """What looks wrong under this method, besides `hacrl.symptoms.COMMON` or in place of it."""
    shown: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Pair metrics in the live table: heading -> metric under `cross/<source>-><learner>/` and its format."""

    def prompts_drawn(self, prompts_per_step: int, agents: int) -> int:
        """Prompts of a step in which every agent responds to `prompts_each` of them: the same for all."""
        return self.prompts_each(prompts_per_step, agents)

    def assign(self, prompts: Sequence[Prompt], agents: Sequence[str]) -> dict[str, list[Prompt]]:
        """Which of the step's prompts each agent responds to: all of them."""
        return {agent: list(prompts) for agent in agents}

    @abstractmethod
    def loss_terms(self, view: View) -> list[LossTerm]:
        """What one learner trains on in this step, in order."""

    def baseline(self, view: View) -> Tensor | None:
        """[b] the learner's baseline, if it is not its own group's mean."""
        return None

    def metrics(self, view: View, terms: Sequence[LossTerm]) -> dict[str, float]:
        """The method's own metrics of one learner's step, logged under `agent/<learner>/`."""
        return {}

    def pair_metrics(self, view: View, source: str) -> dict[str, float]:
        """The same for one source's responses, logged under `cross/<source>-><learner>/`."""
        return {}
