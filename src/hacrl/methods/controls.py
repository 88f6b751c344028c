"""Controls: what a sharing method does besides sharing, with nothing shared."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hacrl.algorithm import GspoObjective, HacpoObjective, HacpoParams, SurrogateObjective
from hacrl.methods.base import Method, View
from hacrl.methods.gspo import own_term
from hacrl.methods.hacpo import Sharing, hacpo
from hacrl.methods.pooled import PASSES, distinct, imitation_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Replay(Method):
    """GSPO, then own successes once more with their advantage, unclipped; as many updates as with peers."""

    name: str
    objective: GspoObjective
    rollout_factor: int = 1

    def lessons(self, view: View) -> list[LossTerm]:
        """Own answers, then those among them that were right."""
        first = own_term(view, self.objective)
        again = replace(
            first,
            objective=SurrogateObjective(),
            mask=first.mask & view.verified,
            updates=view.peer_updates * self.rollout_factor,
        )
        return [first, again]


@dataclass(frozen=True)
class OwnPool(Method):
    """GSPO, then own distinct successes imitated: the loss of `commons` with nothing shared."""

    name: str
    objective: GspoObjective
    passes: int
    rollout_factor: int = 1

    def lessons(self, view: View) -> list[LossTerm]:
        """Own answers, then the distinct ones among them that were right."""
        own = distinct(view.table, view.own & view.verified)
        updates = view.peer_updates * self.rollout_factor
        return [own_term(view, self.objective), imitation_term(view, own, updates, self.passes)]


@dataclass(frozen=True)
class MutedPeers(Method):
    """HACPO whose peers' answers have gradient 0: what the extra optimiser steps do by themselves.

    They are computed and weighted with 0. (A mini-batch of answers with advantage 0 would not be computed,
    and without any gradient an optimiser leaves the weights alone instead of following its momentum.)
    """

    full: Sharing
    name: str = "hacpo_muted"

    def lessons(self, view: View) -> list[LossTerm]:
        """HACPO's lesson with coefficient 0 for every peer."""
        return [
            replace(lesson, coefficients=torch.zeros_like(lesson.coefficients))
            for lesson in self.full.lessons(view)
        ]


@dataclass(frozen=True)
class Copies(Method):
    """HACPO with copies of oneself as peers: as many as there are peers, always with the same weights.

    A copy's answers are further answers of the learner itself: every agent pays for its peers' rollouts.
    """

    params: HacpoParams
    rollout_factor: int
    """The number of agents: the learner and a copy in place of every peer."""
    name: str = "hacpo_copies"

    def lessons(self, view: View) -> list[LossTerm]:
        """The first share of the answers is the learner's own, the others are treated as peers'."""
        lesson = own_term(view, HacpoObjective(self.params))
        sample = torch.arange(lesson.mask.shape[2])
        own = lesson.mask & (sample < lesson.mask.shape[2] // self.rollout_factor)
        copies = HacpoObjective(self.params, all_peers=True)
        return [
            replace(lesson, mask=own, updates=view.mini_batches),
            replace(lesson, mask=lesson.mask & ~own, objective=copies, updates=view.peer_updates),
        ]


def replay(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Replay:
    """Own successes replayed."""
    return Replay("replay", GspoObjective(clip_low, clip_high))


def replay_x2(clip_low: float = 3e-4, clip_high: float = 4e-4) -> Replay:
    """Own successes replayed, with twice the rollouts."""
    return Replay("replay_x2", GspoObjective(clip_low, clip_high), rollout_factor=2)


def pool(clip_low: float = 3e-4, clip_high: float = 4e-4, passes: int = PASSES) -> OwnPool:
    """Own distinct successes imitated."""
    return OwnPool("pool", GspoObjective(clip_low, clip_high), passes)


def pool_x2(clip_low: float = 3e-4, clip_high: float = 4e-4, passes: int = PASSES) -> OwnPool:
    """Own distinct successes imitated, with twice the rollouts."""
    return OwnPool("pool_x2", GspoObjective(clip_low, clip_high), passes, rollout_factor=2)


def hacpo_muted(params: HacpoParams | None = None) -> MutedPeers:
    """HACPO without its peers' gradient."""
    return MutedPeers(hacpo(params))


def hacpo_copies(agents: int, params: HacpoParams | None = None) -> Copies:
    """HACPO among copies of oneself in place of `agents` - 1 peers."""
    return Copies(params or HacpoParams(), rollout_factor=agents)
