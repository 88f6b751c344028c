"""What one learner receives in a step, and its rewards as the tensors the algorithm computes with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.types import Trajectory

Reverify = Callable[[Sequence[Trajectory]], Sequence[float | None]]
"""Scores responses a second time, all in one batch; None where it cannot."""


def collect(trajectories: Iterable[Trajectory]) -> tuple[tuple[Trajectory, ...], Counter[str]]:
    """A step's trajectories sorted by source, prompt and sample, and how many were rejected, by cause.

    A model whose activations overflow draws tokens with NaN log-probs (`non_finite_logp`): one such row would
    make the whole mini-batch of every learner NaN. Rewards are always finite: the rewarder checks them.
    """
    accepted: list[Trajectory] = []
    rejected: Counter[str] = Counter()
    for trajectory in trajectories:
        if all(map(math.isfinite, trajectory.token_logps)):
            accepted.append(trajectory)
        else:
            rejected["non_finite_logp"] += 1
    return tuple(sorted(accepted, key=lambda t: (t.source, t.prompt_id, t.sample))), rejected


def receive(
    trajectories: Iterable[Trajectory],
    learner: str,
    sources: Collection[str],
    reverify: Reverify | None = None,
) -> tuple[tuple[Trajectory, ...], Counter[str]]:
    """The learner's own trajectories and those of its `sources`; with `reverify`, only confirmed rewards.

    Returns them, and how many were rejected: `reward_differs`, or `reward_unconfirmed` when the second
    verification failed. Responses without a reward have nothing to confirm and are passed on: they are
    masked.
    """
    addressed = [t for t in trajectories if t.source == learner or t.source in sources]
    if reverify is None:
        return tuple(addressed), Counter()
    claims = [t for t in addressed if t.source != learner and t.reward is not None]
    again = dict(zip((t.id for t in claims), reverify(claims) if claims else (), strict=True))
    rejected: Counter[str] = Counter()
    received: list[Trajectory] = []
    for t in addressed:
        if t.id not in again or again[t.id] == t.reward:
            received.append(t)
        else:
            rejected["reward_unconfirmed" if again[t.id] is None else "reward_differs"] += 1
    return tuple(received), rejected


@dataclass(frozen=True)
class RewardTable:
    """Rewards by source j, prompt b and sample i. Agents may respond unequally often, or not at all."""

    step: int
    agents: tuple[str, ...]
    prompt_ids: tuple[str, ...]
    samples: tuple[tuple[tuple[Trajectory, ...], ...], ...]
    """`samples[j][b]`: agent j's responses to prompt b, in the order of their sample numbers."""
    rewards: Tensor
    """[j, b, i]; 0 where masked."""
    mask: Tensor
    """[j, b, i] bool: the sample exists and has a reward."""

    @property
    def truncated(self) -> Tensor:
        """[j, b, i] bool: the response was cut off at the token limit."""
        found = torch.zeros_like(self.mask)
        for j, by_prompt in enumerate(self.samples):
            for b, group in enumerate(by_prompt):
                found[j, b, : len(group)] = torch.tensor([t.finish_reason == "length" for t in group])
        return found


def arrange(
    step: int, trajectories: Iterable[Trajectory], agents: Sequence[str], prompt_ids: Sequence[str]
) -> RewardTable:
    """A step's trajectories as a table; `agents` and `prompt_ids` give the order of j and b."""
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
