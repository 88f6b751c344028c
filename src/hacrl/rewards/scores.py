"""Scores of responses: a reward or the reason why there is none, and how reward functions produce them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hacrl.printable import printable
from hacrl.types import Prompt

Cause = Literal[
    "none",  # the reward function returned None
    "exception",  # it raised
    "not_finite",  # it returned NaN or an infinity
    "not_a_number",
    "wrong_length",  # not one reward per response
    "timeout",  # it was still running at the deadline and was killed
    "memory",  # it exceeded the memory limit
    "crash",  # its process died
    "protocol",  # its process sent something other than a result
    "not_json",  # the arguments cannot be written as JSON, so they cannot be sent to another process
]

Rewards = Sequence[float | None]
RewardFunction = Callable[..., Rewards | Awaitable[Rewards]]
"""`f(prompts, completions, completion_ids, **columns) -> list[float | None]`, sync or async, as in TRL."""

_OWN_NAMES = frozenset({"prompt", "completion", "prompts", "completions", "completion_ids"})


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of one response. It is None if the response is unscorable; then `cause` says why."""

    reward: float | None
    cause: Cause | None = None
    detail: str = ""
    """For people: the exception's message, for example."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call of a verifier or reward function: a value, or the cause of its failure."""

    value: Any = None
    cause: Cause | None = None
    detail: str = ""


Call = Callable[[Sequence[Mapping[str, Any]]], list[Outcome]]
"""Calls a function once per mapping of keyword arguments, here or in a pool; outcomes are in that order."""


class TooManyUnscorable(RuntimeError):
    """More responses of a batch than `max_unscorable` allows have no reward."""


def as_score(value: Any) -> Score:
    """The score for a plain value: a number, None, or the name of another type.

    It may have been written by a worker that runs a response, and is checked like any other input.
    """
    if value is None:
        return Score(None, "none")
    if not isinstance(value, int | float):
        kind = value if isinstance(value, str) else type(value).__name__
        return Score(None, "not_a_number", f"the reward is of type {printable(kind, 50)}")
    try:
        reward = float(value)
    except OverflowError:
        reward = math.inf
    return Score(reward) if math.isfinite(reward) else Score(None, "not_finite", f"the reward is {reward}")


def check_share(scores: Sequence[Score], max_unscorable: float) -> None:
    """Raise `TooManyUnscorable` when more than this share of the batch has no reward."""
    lost = [score for score in scores if score.reward is None]
    if len(lost) <= max_unscorable * len(scores):
        return
    causes = ", ".join(f"{cause} {count}" for cause, count in Counter(s.cause for s in lost).most_common())
    detail = next((f" For example: {score.detail}" for score in lost if score.detail), "")
    raise TooManyUnscorable(
        f"{len(lost)} of {len(scores)} responses could not be scored ({causes}), more than the allowed "
        f"share max_unscorable={max_unscorable:g}.{detail} Fix the verifier, change its limits, or raise "
        "max_unscorable."
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """What is scored together: one prompt and one completion per sample, in the same order."""

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


def score_with(call: Call, batch: Batch) -> list[Score]:
    """Score the batch in one call. If it fails, score each sample on its own: only bad ones are lost."""
    size = len(batch.prompts)
    scores = _read(call([batch.arguments()])[0], size)
    if size == 1 or all(score.cause in (None, "none", "not_finite", "not_a_number") for score in scores):
        return scores
    outcomes = call([batch.one(index).arguments() for index in range(size)])
    return [_read(outcome, 1)[0] for outcome in outcomes]


def _read(outcome: Outcome, size: int) -> list[Score]:
    rewards = outcome.value
    if outcome.cause is not None:
        return [Score(None, outcome.cause, outcome.detail)] * size
    if not isinstance(rewards, list):
        kind = rewards if isinstance(rewards, str) else type(rewards).__name__
        return [Score(None, "wrong_length", f"returned {printable(kind, 50)}, not a list")] * size
    if len(rewards) != size:
        count = f"more than {size}" if len(rewards) > size else str(len(rewards))
        return [Score(None, "wrong_length", f"returned {count} rewards for {size} completions")] * size
    return [as_score(reward) for reward in rewards]
