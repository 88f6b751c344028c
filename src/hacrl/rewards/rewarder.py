"""The reward of a response: a weighted sum of verifiers and reward functions."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from hacrl.defaults import MAX_UNSCORABLE
from hacrl.rewards.calls import call_here
from hacrl.rewards.pool import Pool
from hacrl.rewards.processes import Limits
from hacrl.rewards.scores import (
    Batch,
    Call,
    Cause,
    RewardFunction,
    Score,
    as_score,
    check_share,
    score_with,
)
from hacrl.rewards.verification import Verification
from hacrl.rewards.verifiers import get_verifier
from hacrl.types import Prompt

Scorer = Callable[[Batch], list[Score]]


@dataclass(frozen=True, slots=True)
class Reward:
    """One term of the sum."""

    source: str | RewardFunction
    """A verifier's name; a reward function as `module:function`, run in worker processes; or the function
    itself, run in this process."""
    weight: float = 1.0
    gold: str | None = None
    """The column with the reference; None: the verifier's default."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments of the verifier."""


class Rewarder:
    """Scores responses. Whatever a verifier does, each gets a reward or the cause why it has none."""

    def __init__(
        self,
        rewards: Sequence[Reward],
        *,
        limits: Limits | None = None,
        workers: int = 2,
        max_unscorable: float = MAX_UNSCORABLE,
    ) -> None:
        if not rewards:
            raise ValueError("a rewarder needs at least one verifier or reward function")
        self.max_unscorable = max_unscorable
        self.unscorable: Counter[Cause] = Counter()
        """Responses without a reward so far, by cause."""
        self._pools = ExitStack()
        self._weights = [reward.weight for reward in rewards]
        try:
            self._scorers = [self._scorer(reward, limits or Limits(), workers) for reward in rewards]
        except BaseException:
            self.close()
            raise

    def score(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        *,
        limit_unscorable: bool = True,
    ) -> list[Score]:
        """One score per response. Raises `TooManyUnscorable` when too large a share has no reward.

        `limit_unscorable=False` turns that check off, for callers that can do without these rewards.
        """
        batch = Batch(prompts, completions, completion_ids)
        if not prompts:
            return []
        by_scorer = [scorer(batch) for scorer in self._scorers]
        scores = [combine(terms, self._weights) for terms in zip(*by_scorer, strict=True)]
        self.unscorable.update(score.cause for score in scores if score.cause is not None)
        if limit_unscorable:
            check_share(scores, self.max_unscorable)
        return scores

    def close(self) -> None:
        """End all worker processes."""
        self._pools.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _scorer(self, reward: Reward, limits: Limits, workers: int) -> Scorer:
        if not isinstance(reward.source, str):
            return functools.partial(score_with, functools.partial(call_here, reward.source))
        if ":" in reward.source:
            pool = self._pools.enter_context(Pool(reward.source, replace(limits, confined=False), workers))
            return functools.partial(score_with, pool.run)
        verifier = get_verifier(reward.source)
        if verifier.in_process:
            call: Call = functools.partial(call_here, verifier.load())
        else:
            own = replace(limits, calls=1) if verifier.runs_response else limits
            call = self._pools.enter_context(Pool(verifier.path, own, workers)).run
        return Verification(call, verifier, reward.gold or verifier.gold, reward.settings)


def combine(terms: Sequence[Score], weights: Sequence[float]) -> Score:
    """The weighted sum. A term that is None is left out; if a term failed, the sum is unknown.

    Leaving out None is TRL's rule: the function does not apply to this response. A term that failed, for
    example a verifier killed at its deadline, is not left out: a right response would be scored as wrong.
    """
    failed = next((term for term in terms if term.cause not in (None, "none")), None)
    known = [
        (term.reward, weight) for term, weight in zip(terms, weights, strict=True) if term.reward is not None
    ]
    if failed or not known:
        return failed or terms[0]
    return as_score(sum(reward * weight for reward, weight in known))
