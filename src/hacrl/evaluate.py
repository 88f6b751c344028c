"""Every agent alone: greedy accuracy, mean@k and pass@k, with confidence intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hacrl.agents.policy import Policy
from hacrl.agents.settings import Sampling
from hacrl.rewards import Rewarder
from hacrl.types import Prompt

Z_95 = 1.959963984540054
"""Normal quantile of a two-sided 95% interval."""


@dataclass(frozen=True, slots=True)
class Share:
    """A mean over problems of values in [0, 1], with its 95% interval."""

    mean: float
    low: float
    high: float
    problems: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How one agent does on a set of problems. An unscorable answer is left out of the problem's mean."""

    greedy: Share
    greedy_by_kind: dict[str, Share]
    mean_at_k: Share | None
    """Expected accuracy of one sample at temperature 1; None when no samples were asked for."""
    pass_at_k: Share | None
    """Share of problems that at least one of k samples solves."""
    samples: int
    unscorable: int

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        """Back from `as_dict`."""
        shares = {key: Share(**values[key]) if values[key] else None for key in ("mean_at_k", "pass_at_k")}
        return cls(
            greedy=Share(**values["greedy"]),
            greedy_by_kind={kind: Share(**share) for kind, share in values["greedy_by_kind"].items()},
            samples=values["samples"],
            unscorable=values["unscorable"],
            **shares,
        )


def evaluate(
    agent: Policy, prompts: Sequence[Prompt], rewarder: Rewarder, sampling: Sampling, samples: int, seed: int
) -> Evaluation:
    """Answer every prompt greedily, and `samples` times at the temperature of `sampling` (0: greedy only)."""
    greedy = _scores(agent, prompts, rewarder, replace(sampling, greedy=True), 1, seed)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for prompt, rewards in zip(prompts, greedy, strict=True):
        by_kind[prompt.kind] += rewards
    drawn = _scores(agent, prompts, rewarder, sampling, samples, seed) if samples else []
    scored = [rewards for rewards in drawn if rewards]
    return Evaluation(
        greedy=share([reward for rewards in greedy for reward in rewards]),
        greedy_by_kind={kind: share(rewards) for kind, rewards in sorted(by_kind.items()) if kind},
        mean_at_k=share([sum(rewards) / len(rewards) for rewards in scored]) if samples else None,
        pass_at_k=share([max(rewards) for rewards in scored]) if samples else None,
        samples=samples,
        unscorable=len(prompts) * (1 + samples) - sum(map(len, greedy)) - sum(map(len, drawn)),
    )


def share(values: Sequence[float]) -> Share:
    """Mean with a 95% interval: Wilson's, on the number of yes-or-no problems with the same variance.

    For values that are only 0 or 1 this is exactly Wilson's interval. It stays inside [0, 1] and does not
    shrink to a point when all answers are right or all are wrong.
    """
    count = len(values)
    if count == 0:
        return Share(0.0, 0.0, 1.0, 0)
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / count
    inside = mean * (1 - mean)
    effective = count * inside / variance if variance > 0 and inside > 0 else count
    shift = Z_95**2 / effective
    centre = (mean + shift / 2) / (1 + shift)
    half = Z_95 / (1 + shift) * math.sqrt(max(0.0, inside) / effective + Z_95**2 / (4 * effective**2))
    return Share(mean, max(0.0, centre - half), min(1.0, centre + half), count)


def _scores(
    agent: Policy, prompts: Sequence[Prompt], rewarder: Rewarder, sampling: Sampling, samples: int, seed: int
) -> list[list[float]]:
    """For every prompt the rewards of its scorable answers, cut to [0, 1]."""
    rollouts = agent.sample(prompts, samples, sampling, seed)
    asked = [prompt for prompt in prompts for _ in range(samples)]
    scores = rewarder.score(
        asked, [rollout.text for rollout in rollouts], [rollout.token_ids for rollout in rollouts]
    )
    rewards = [score.reward for score in scores]
    grouped = [rewards[start : start + samples] for start in range(0, len(rewards), samples)]
    return [[min(1.0, max(0.0, reward)) for reward in group if reward is not None] for group in grouped]
