"""Parts that several methods share: GSPO on own responses, imitation, choices among peers' responses."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from hacrl.algorithm import GspoObjective, ImitationObjective, Objective, own_advantages
from hacrl.defaults import GSPO_CLIP_HIGH, GSPO_CLIP_LOW
from hacrl.methods.base import Method, View
from hacrl.recipe.fields import AtLeast0, Count, CountOrAgents, Share
from hacrl.sharing import LossTerm, RewardTable
from hacrl.types import Prompt


class GspoOnOwn(Method):
    """Methods that train on own responses with GSPO, whatever they do with peers'."""

    clip_low: Share = GSPO_CLIP_LOW
    """Clip of the ratio of own responses below 1."""
    clip_high: AtLeast0 = GSPO_CLIP_HIGH
    """Clip of the ratio of own responses above 1."""

    @property
    def own_objective(self) -> GspoObjective:
        """GSPO with the method's clip."""
        return GspoObjective(self.clip_low, self.clip_high)


class Alone(Method):
    """Methods without sharing: one or more passes over a step's own responses."""

    epochs: Count = 1
    """Passes over a step's responses."""

    shares: ClassVar[bool] = False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Twice the rollouts are twice the mini-batches: the size of a mini-batch stays the same."""
        return mini_batches * self.rollout_factor(agents) * self.prompts_each(1, agents) * self.epochs


class OwnPrompts(Method):
    """Methods in which every agent has prompts of its own, as many as with other methods."""

    def prompts_drawn(self, prompts_per_step: int, agents: int) -> int:
        """A share for every agent."""
        return prompts_per_step * agents

    def assign(self, prompts: Sequence[Prompt], agents: Sequence[str]) -> dict[str, list[Prompt]]:
        """Equal shares; the prompts of a step are in random order."""
        share = len(prompts) // len(agents)
        return {
            agent: list(prompts[place * share : (place + 1) * share])
            for place, agent in enumerate(sorted(agents))
        }


class TwiceTheRollouts(Method):
    """Methods that also exist as `NAME_x2`, with twice the rollouts."""

    def rollout_factor(self, agents: int) -> int:
        """Twice as many under the second name."""
        return 2 if self.name.endswith("_x2") else 1


class MorePrompts(Method):
    """Methods without sharing whose agents can have more prompts instead."""

    prompt_factor: CountOrAgents = 1
    """Factor on `prompts_per_step`; `agents`: the number of agents, as many prompts as all have together."""

    def prompts_each(self, prompts_per_step: int, agents: int) -> int:
        """More of them, all for every agent."""
        return prompts_per_step * (agents if self.prompt_factor == "agents" else self.prompt_factor)


class OneUpdatePerMiniBatch(Method):
    """Methods whose peers' responses are in the same updates as the learner's own."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as alone."""
        return mini_batches


class UsesOmega(Method):
    """Methods that compare the agents' capabilities."""

    shown: ClassVar[Mapping[str, tuple[str, str]]] = {"omega": ("omega", ".2f")}

    def pair_metrics(self, view: View, source: str) -> dict[str, float]:
        """omega[source, learner]: above 1, the source is the stronger of the two."""
        return {"omega": float(view.omega[view.table.agents.index(source), view.k])}


def own_term(view: View, objective: Objective) -> LossTerm:
    """The learner's own responses with its own group's mean and spread."""
    advantages, _ = own_advantages(view.table.rewards, mask=view.table.mask)
    return LossTerm(objective, advantages[view.k], view.own, view.equal_weights)


def imitation_term(view: View, pool: Tensor, updates: int, passes: int = 1) -> LossTerm:
    """Imitate the texts of `pool[j, b, i]`: every prompt counts the same, however many texts it has.

    -mean over prompts x of 1/|C(x)| * sum over y in C(x) of log pi(y) / c, with c the mean length of the
    pool's texts. The mean over rows that an update takes becomes the mean over prompts by the weights.
    """
    pool = pool & view.trainable
    texts = pool.sum((0, 2)).clamp(min=1).double()  # [b], |C(x)|
    rows, prompts = int(pool.sum()), int(pool.any(2).any(0).sum())
    weights = torch.where(
        pool, rows / (max(1, prompts) * texts[None, :, None] * _mean_length(view, pool)), 0.0
    )
    return LossTerm(
        ImitationObjective(),
        weights,
        pool,
        view.equal_weights,
        updates=updates,
        passes=passes,
        complete=True,
    )


def _mean_length(view: View, pool: Tensor) -> float:
    """Tokens of the pool's texts, each counted by the agent that drew it.

    Where nobody has counted them, the learner would need as many per byte as in its own responses.
    """
    mine = [t for group in view.table.samples[view.k] for t in group]
    own = sum(t.length for t in mine) / max(1, sum(len(t.written.encode()) for t in mine))
    texts = [view.table.samples[j][b][i] for j, b, i in pool.nonzero().tolist()]
    lengths = [t.length or max(1.0, own * len(t.written.encode())) for t in texts]
    return sum(lengths) / len(lengths) if lengths else 1.0


def distinct(table: RewardTable, chosen: Tensor) -> Tensor:
    """[j, b, i]: of `chosen`, the first response with each text to each prompt.

    Agents come in the order of their names, so that their places in the list do not matter.
    """
    kept = torch.zeros_like(chosen)
    seen: set[tuple[int, str]] = set()
    for j in sorted(range(len(table.agents)), key=lambda place: table.agents[place]):
        for b, i in chosen[j].nonzero().tolist():
            key = b, table.samples[j][b][i].text
            kept[j, b, i] = key not in seen
            seen.add(key)
    return kept


def group_advantages(view: View) -> Tensor:
    """[j, b, i]: every response compared with its own source's responses to the prompt."""
    values, _ = own_advantages(view.table.rewards, mask=view.table.mask)
    return values.sum(0)


def rng(view: View) -> random.Random:
    """The same draws for the same learner, step and prompts."""
    return random.Random("/".join((view.learner, str(view.table.step), *view.table.prompt_ids)))


def one_each(view: View, candidates: Tensor) -> Tensor:
    """[j, b, i]: of the candidates for each prompt, one drawn uniformly.

    Agents come in the order of their names, so that their places in the list do not matter.
    """
    by_prompt: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for j, b, i in candidates.nonzero().tolist():
        by_prompt[b].append((view.table.agents[j], i, j))
    drawn = torch.zeros_like(candidates)
    draws = rng(view)
    for b in sorted(by_prompt):
        _, i, j = draws.choice(sorted(by_prompt[b]))
        drawn[j, b, i] = True
    return drawn


def strongest(view: View) -> int:
    """Index of the most capable agent among the learner and its sources; of equals the first by name.

    An agent whose responses have not arrived yet counts as well: no other agent stands in for it.
    """
    known = [
        j
        for j, agent in enumerate(view.table.agents)
        if j == view.k or agent in view.awaited or view.table.mask[j].any()
    ]
    beaten = {j: sum(bool(view.omega[j, other] > 1) for other in known) for j in known}
    return min(known, key=lambda j: (-beaten[j], view.table.agents[j]))
