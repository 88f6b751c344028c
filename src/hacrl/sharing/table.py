"""What one learner hears in a step, and its rewards as the tensors the algorithm computes with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.types import Trajectory

Reverify = Callable[[Trajectory], float | None]
"""Scores a response again; None when it cannot."""


def hear(
    trajectories: Iterable[Trajectory],
    learner: str,
    sources: Collection[str],
    reverify: Reverify | None = None,
) -> tuple[tuple[Trajectory, ...], Counter[str]]:
    """The learner's own trajectories and those of its `sources`; with `reverify`, only confirmed rewards.

    Returns them, and how many were not believed: `reward_differs`, or `reward_unconfirmed` when the second
    verification failed. Unscored responses have no reward to confirm and are passed on: they are masked.
    """
    heard: list[Trajectory] = []
    mistrusted: Counter[str] = Counter()
    for trajectory in trajectories:
        own = trajectory.source == learner
        if not own and trajectory.source not in sources:
            continue
        if reverify is not None and not own and trajectory.reward is not None:
            again = reverify(trajectory)
            if again != trajectory.reward:
                mistrusted["reward_unconfirmed" if again is None else "reward_differs"] += 1
                continue
        heard.append(trajectory)
    return tuple(heard), mistrusted


@dataclass(frozen=True)
class RewardTable:
    """Rewards by source j, prompt b and sample i. Agents may answer unequally often, or not at all."""

    step: int
    agents: tuple[str, ...]
    prompt_ids: tuple[str, ...]
    samples: tuple[tuple[tuple[Trajectory, ...], ...], ...]
    """`samples[j][b]`: what agent j answered to prompt b, in the order of its sample numbers."""
    rewards: Tensor
    """[j, b, i]; 0 where masked."""
    mask: Tensor
    """[j, b, i] bool: the sample exists and could be scored."""


def arrange(
    step: int, trajectories: Iterable[Trajectory], agents: Sequence[str], prompt_ids: Sequence[str]
) -> RewardTable:
    """Put a step's trajectories in their places; `agents` and `prompt_ids` give the order of j and b."""
    groups: dict[tuple[str, str], list[Trajectory]] = {
        (agent, prompt_id): [] for agent in agents for prompt_id in prompt_ids
    }
    for trajectory in trajectories:
        place = trajectory.source, trajectory.prompt_id
        if trajectory.step != step or place not in groups:
            raise ValueError(f"trajectory {trajectory.id} has no place in step {step}'s agents x prompt_ids")
        groups[place].append(trajectory)
    samples = tuple(
        tuple(tuple(sorted(groups[agent, prompt_id], key=lambda t: t.sample)) for prompt_id in prompt_ids)
        for agent in agents
    )
    most = max(map(len, groups.values()), default=0)
    rewards = torch.full((len(agents), len(prompt_ids), max(1, most)), math.nan, dtype=torch.float64)
    for j, by_prompt in enumerate(samples):
        for b, group in enumerate(by_prompt):
            found = [math.nan if t.reward is None else t.reward for t in group]
            rewards[j, b, : len(group)] = torch.tensor(found, dtype=torch.float64)
    mask = ~rewards.isnan()
    return RewardTable(step, tuple(agents), tuple(prompt_ids), samples, rewards.nan_to_num(0.0), mask)
