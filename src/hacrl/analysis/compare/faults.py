"""Faults injected for experiments: agents that misreport their rewards to their peers.

Training code has no part in them: `faulty_delivery` replaces the team's `deliver`, which gives every learner
the trajectories of a step.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from hacrl.recipe import Recipe
from hacrl.recipe.fields import Settings, all_different
from hacrl.recipe.problems import Problem, nearest
from hacrl.training.team import Deliver
from hacrl.types import Trajectory

Agents = Annotated[tuple[str, ...], Field(strict=False), AfterValidator(all_different)]


class Faults(Settings):
    """Which agents misreport, and how."""

    shuffled: Agents = ()
    """The rewards of these agents' responses are delivered in a random order."""
    inverted: Agents = ()
    """Right responses of these agents are delivered as wrong ones and vice versa."""

    def __bool__(self) -> bool:
        return bool(self.shuffled or self.inverted)

    def problems(self, recipe: Recipe) -> Iterator[Problem]:
        """Agents that the recipe does not have."""
        names = sorted(agent.name for agent in recipe.agents)
        for key, agents in (("shuffled", self.shuffled), ("inverted", self.inverted)):
            for name in agents:
                if name not in names:
                    message = f"expected some of the agents {names}, got {name!r}{nearest(name, names)}"
                    yield Problem(f"faults.{key}", message)

    def delivery(self, recipe: Recipe) -> Deliver | None:
        """The `deliver` of a run with these faults; None without any."""
        return faulty_delivery(recipe, shuffled=self.shuffled, inverted=self.inverted) if self else None


NO_FAULTS = Faults()


def faulty_delivery(
    recipe: Recipe, *, shuffled: Collection[str] = (), inverted: Collection[str] = ()
) -> Deliver:
    """Deliver trajectories with wrong rewards; a learner's own responses keep their true rewards."""

    def deliver(trajectories: Sequence[Trajectory], learner: str, step: int) -> Sequence[Trajectory]:
        return misreport(
            trajectories,
            shuffled=set(shuffled) - {learner},
            inverted=set(inverted) - {learner},
            reward_max=recipe.reward.maximum,
            seed=_seed(recipe, step),
        )

    return deliver


def misreport(
    trajectories: Sequence[Trajectory],
    *,
    shuffled: Collection[str] = (),
    inverted: Collection[str] = (),
    reward_max: float,
    seed: int,
) -> list[Trajectory]:
    """A step's trajectories with the rewards their sources report, in the same order.

    The rewards of a `shuffled` agent are permuted among its responses; an `inverted` agent reports the
    highest reward minus the true one.
    """
    reported = {t.id: t.reward for t in trajectories}
    for agent in shuffled:
        own = [t for t in trajectories if t.source == agent and t.reward is not None]
        rewards = [t.reward for t in own]
        random.Random(f"{seed}/{agent}").shuffle(rewards)
        reported.update(zip((t.id for t in own), rewards, strict=True))
    for t in trajectories:
        reward = reported[t.id]
        if t.source in inverted and reward is not None:
            reported[t.id] = reward_max - reward
    return [t if t.reward == reported[t.id] else replace(t, reward=reported[t.id]) for t in trajectories]


def _seed(recipe: Recipe, step: int) -> int:
    """The same as `Team.seed("faults/STEP")`: equal for all learners and after a resume."""
    digest = hashlib.blake2b(f"{recipe.seed}/faults/{step}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
