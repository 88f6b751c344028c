"""Reward functions with TRL's signature: how they are called, and what becomes of their failures."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hacrl.rewards.pool import Outcome
from hacrl.rewards.scores import Score, as_score
from hacrl.types import Prompt

Rewards = Sequence[float | None]
RewardFunction = Callable[..., Rewards | Awaitable[Rewards]]
"""`f(prompts, completions, completion_ids, **columns) -> list[float | None]`, sync or async."""

_OWN_NAMES = frozenset({"prompt", "completion", "prompts", "completions", "completion_ids"})


@dataclass(frozen=True, slots=True)
class Batch:
    """Aligned: one prompt and one completion per sample."""

    prompts: Sequence[Prompt]
    completions: Sequence[str]
    completion_ids: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        lengths = (len(self.prompts), len(self.completions), len(self.completion_ids))
        if len(set(lengths)) != 1:
            raise ValueError(f"prompts, completions and completion_ids have different lengths: {lengths}")

    def one(self, index: int) -> Batch:
        """The batch that holds only this sample."""
        part = slice(index, index + 1)
        return Batch(self.prompts[part], self.completions[part], self.completion_ids[part])

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of a reward function; in a chat, a completion is a list with one message."""
        names = dict.fromkeys(name for prompt in self.prompts for name in prompt.columns)
        columns = {
            name: [p.columns.get(name) for p in self.prompts] for name in names if name not in _OWN_NAMES
        }
        return {
            "prompts": [
                p.text if isinstance(p.text, str) else [dict(m) for m in p.text] for p in self.prompts
            ],
            "completions": [
                [{"role": "assistant", "content": text}] if prompt.is_chat else text
                for prompt, text in zip(self.prompts, self.completions, strict=True)
            ],
            "completion_ids": [list(ids) for ids in self.completion_ids],
            **columns,
        }


def score_with(call: Callable[[Sequence[Mapping[str, Any]]], list[Outcome]], batch: Batch) -> list[Score]:
    """Score the batch in one call; if that fails, sample by sample, so that a bad one spoils no other."""
    size = len(batch.prompts)
    scores = _read(call([batch.arguments()])[0], size)
    if size == 1 or all(score.cause in (None, "none", "not_finite", "not_a_number") for score in scores):
        return scores
    outcomes = call([batch.one(index).arguments() for index in range(size)])
    return [_read(outcome, 1)[0] for outcome in outcomes]


def call_here(function: RewardFunction, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Call the user's function in this process."""
    return [_call_here(function, arguments) for arguments in calls]


def _call_here(function: RewardFunction, arguments: Mapping[str, Any]) -> Outcome:
    try:
        value = function(**arguments)
        if inspect.isawaitable(value):
            value = _finish(value)
        return Outcome(value)
    except MemoryError as error:
        return Outcome(None, "memory", str(error))
    except Exception as error:
        return Outcome(None, "exception", f"{type(error).__name__}: {str(error)[:300]}")


def _finish(value: Awaitable[Rewards]) -> Rewards:
    """Wait for an async function, on a thread of its own: the caller's may have a running event loop."""

    import asyncio  # slow to import, and workers import this module

    async def wait() -> Rewards:
        return await value

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, wait()).result()


def _read(outcome: Outcome, size: int) -> list[Score]:
    if outcome.cause is not None:
        return [Score(None, outcome.cause, outcome.detail)] * size
    try:
        rewards = list(outcome.value)
    except TypeError:
        return [Score(None, "wrong_length", f"returned {type(outcome.value).__name__}, not a list")] * size
    if len(rewards) != size:
        return [Score(None, "wrong_length", f"returned {len(rewards)} rewards for {size} completions")] * size
    return [as_score(reward) for reward in rewards]
