"""Evaluation of one agent alone: greedy accuracy, mean@k, pass@k and entropy, with confidence intervals."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from hacrl.agents.agent import Agent
from hacrl.recipe.settings import SamplingSettings
from hacrl.rewards import Rewarder
from hacrl.types import FinishReason, Prompt

Measure = Literal["greedy", "mean_at_k", "pass_at_k", "pass_at_many"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
"""The shares of an `Evaluation`, by the names of its fields."""

DECIMALS = 2
"""Of entropies: more would only make files larger."""

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
class Problems:
    """The outcome of every problem in the order of the prompts; None where nothing could be scored."""

    ids: list[str]
    responses: list[str]
    """Digests of the greedy responses: equal responses have equal digests."""
    greedy: list[float | None]
    mean_at_k: list[float | None] | None
    pass_at_k: list[float | None] | None
    pass_at_many: list[float | None] | None = None
    """Of the first problems only."""
    entropy: list[float | None] | None = None
    """Minus the mean log-prob of the samples, in nats."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Problems:
        """Back from JSON; older runs have `answers` in place of `responses`."""
        return cls(**{"responses" if key == "answers" else key: column for key, column in values.items()})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One agent's results on a set of problems. Unscorable responses are left out of a problem's mean."""

    greedy: Share
    greedy_by_kind: dict[str, Share]
    mean_at_k: Share | None
    """Expected accuracy of one sample at temperature 1; None without samples."""
    pass_at_k: Share | None
    """Share of problems that at least one of k samples solves."""
    samples: int
    unscorable: int
    problems: Problems
    """The outcomes behind the shares, for paired comparisons."""
    pass_at_many: Share | None = None
    """As `pass_at_k`, with more samples of fewer problems."""
    many: int = 0
    """The samples behind it."""
    entropy: float | None = None
    """Of a response, in nats: an unbiased estimate if nothing but temperature 1 shapes the sampling."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        """Back from `as_dict`."""
        shares = {key: Share(**values[key]) if values.get(key) else None for key in MEASURES[1:]}
        return cls(
            greedy=Share(**values["greedy"]),
            greedy_by_kind={kind: Share(**share) for kind, share in values["greedy_by_kind"].items()},
            samples=values["samples"],
            unscorable=values["unscorable"],
            problems=Problems.from_dict(values["problems"]),
            many=values.get("many", 0),
            entropy=values.get("entropy"),
            **shares,
        )


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """One response of an evaluation."""

    prompt: Prompt
    greedy: bool
    sample: int
    text: str
    finish_reason: FinishReason
    reward: float | None
    """None: it could not be scored."""
    cause: str | None
    """Why it could not be scored."""
    logp: float = 0.0
    """Log-prob of the whole response at temperature 1."""


Evaluations = dict[str, dict[str, Evaluation]]
"""Agent -> task -> the evaluation of the agent alone."""


def measure_name(measure: str, samples: int, many: int = 0) -> str:
    """The usual name: greedy, mean@4, pass@4."""
    return measure.replace("_at_k", f"@{samples}").replace("_at_many", f"@{many}")


def evaluate(
    agent: Agent,
    prompts: Sequence[Prompt],
    rewarder: Rewarder,
    sampling: SamplingSettings,
    samples: int,
    seed: int,
    many: tuple[int, int] = (0, 0),
) -> Evaluation:
    """One greedy response per prompt, and `samples` at the temperature of `sampling` (0: greedy only).

    `many` is a number of samples and of the prompts, the first ones, that get so many.
    """
    found = evaluate_with_responses(agent, prompts, rewarder, sampling, samples, seed)[0]
    samples, asked = many
    if not samples:
        return found
    drawn = _rewards(_respond(agent, prompts[:asked], rewarder, sampling, samples, seed), samples)
    solved: list[float | None] = [max(rewards, default=None) for rewards in drawn]
    problems = replace(found.problems, pass_at_many=solved)
    return replace(found, pass_at_many=_share_of_scored(solved), many=samples, problems=problems)


def evaluate_with_responses(
    agent: Agent,
    prompts: Sequence[Prompt],
    rewarder: Rewarder,
    sampling: SamplingSettings,
    samples: int,
    seed: int,
) -> tuple[Evaluation, list[ScoredResponse]]:
    """As `evaluate`, with all responses: the greedy ones, then the samples."""
    best = _respond(agent, prompts, rewarder, sampling.as_greedy(), 1, seed)
    others = _respond(agent, prompts, rewarder, sampling, samples, seed) if samples else []
    return _evaluation(prompts, best, others, samples), best + others


def _evaluation(
    prompts: Sequence[Prompt], best: Sequence[ScoredResponse], others: Sequence[ScoredResponse], samples: int
) -> Evaluation:
    greedy, drawn = _rewards(best, 1), _rewards(others, samples)
    problems = Problems(
        ids=[prompt.id for prompt in prompts],
        responses=[_digest(response.text) for response in best],
        greedy=[rewards[0] if rewards else None for rewards in greedy],
        mean_at_k=[sum(r) / len(r) if r else None for r in drawn] if samples else None,
        pass_at_k=[max(r, default=None) for r in drawn] if samples else None,
        entropy=_entropies(others, samples) if samples else None,
    )
    by_kind: dict[str, list[float | None]] = defaultdict(list)
    for prompt, outcome in zip(prompts, problems.greedy, strict=True):
        by_kind[prompt.kind].append(outcome)
    return Evaluation(
        greedy=_share_of_scored(problems.greedy),
        greedy_by_kind={kind: _share_of_scored(column) for kind, column in sorted(by_kind.items()) if kind},
        mean_at_k=_share_of_scored(problems.mean_at_k) if problems.mean_at_k is not None else None,
        pass_at_k=_share_of_scored(problems.pass_at_k) if problems.pass_at_k is not None else None,
        samples=samples,
        unscorable=len(prompts) * (1 + samples) - sum(map(len, greedy)) - sum(map(len, drawn)),
        problems=problems,
        entropy=_mean(problems.entropy) if problems.entropy else None,
    )


def _entropies(drawn: Sequence[ScoredResponse], samples: int) -> list[float | None]:
    """Of every prompt; right and wrong responses count alike, and those without a reward too."""
    logps = [response.logp for response in drawn]
    starts = range(0, len(logps), samples)
    return [round(-sum(logps[start : start + samples]) / samples, DECIMALS) for start in starts]


def _mean(values: Sequence[float | None]) -> float:
    found = [value for value in values if value is not None]
    return sum(found) / len(found)


def _share_of_scored(outcomes: Sequence[float | None]) -> Share:
    return share([outcome for outcome in outcomes if outcome is not None])


def _digest(response: str) -> str:
    return hashlib.blake2b(response.strip().encode(), digest_size=6).hexdigest()


def share(values: Sequence[float]) -> Share:
    """Mean with a 95% Wilson interval, on the number of binary problems with the same variance.

    For values that are only 0 or 1 this is exactly Wilson's interval. It stays inside [0, 1] and does not
    shrink to a point when all responses are right or all wrong.
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


def _respond(
    agent: Agent,
    prompts: Sequence[Prompt],
    rewarder: Rewarder,
    sampling: SamplingSettings,
    samples: int,
    seed: int,
) -> list[ScoredResponse]:
    """`samples` responses to each prompt with their rewards."""
    rollouts = agent.sample(prompts, samples, sampling, seed)
    asked = [prompt for prompt in prompts for _ in range(samples)]
    texts = [rollout.text for rollout in rollouts]
    scores = rewarder.score(asked, texts, [rollout.token_ids for rollout in rollouts])
    return [
        ScoredResponse(
            prompt,
            sampling.is_greedy,
            drawn.sample,
            drawn.text,
            drawn.finish_reason,
            score.reward,
            score.cause,
            sum(drawn.token_logps),
        )
        for prompt, drawn, score in zip(asked, rollouts, scores, strict=True)
    ]


def _rewards(responses: Sequence[ScoredResponse], samples: int) -> list[list[float]]:
    """For every prompt the rewards of its scorable responses, clipped to [0, 1]."""
    rewards = [response.reward for response in responses]
    grouped = [rewards[start : start + samples] for start in range(0, len(rewards), samples or 1)]
    return [[min(1.0, max(0.0, reward)) for reward in group if reward is not None] for group in grouped]
