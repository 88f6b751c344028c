"""Peers that tell something else than the truth, to see what a method does with them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

from hacrl.types import Trajectory


def told(
    trajectories: Sequence[Trajectory],
    *,
    shuffled: Collection[str] = (),
    inverted: Collection[str] = (),
    reward_max: float,
    seed: int,
) -> list[Trajectory]:
    """A step's trajectories as peers hear of them, in the same order.

    The rewards of `shuffled` agents change places among their answers; of `inverted` agents' answers, the
    best are told to have earned nothing and the other way round.
    """
    if not shuffled and not inverted:  # every learner asks in every step, and hardly any run has liars
        return list(trajectories)
    claimed = {t.id: t.reward for t in trajectories}
    for agent in shuffled:
        own = [t for t in trajectories if t.source == agent and t.reward is not None]
        rewards = [t.reward for t in own]
        random.Random(f"{seed}/{agent}").shuffle(rewards)
        claimed.update(zip((t.id for t in own), rewards, strict=True))
    for t in trajectories:
        reward = claimed[t.id]
        if t.source in inverted and reward is not None:
            claimed[t.id] = reward_max - reward
    return [t if t.reward == claimed[t.id] else replace(t, reward=claimed[t.id]) for t in trajectories]
