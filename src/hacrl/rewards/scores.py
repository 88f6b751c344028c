"""What a reward is: a number, or the reason why there is none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Cause = Literal[
    "none",  # the reward function answered None
    "exception",  # it raised
    "not_finite",  # it answered NaN or an infinity
    "not_a_number",
    "wrong_length",  # not one reward per completion
    "timeout",  # it was still running at the deadline and was killed
    "memory",  # it asked for more memory than the limit
    "crash",  # its process died
    "protocol",  # its process answered with something other than a result
    "not_json",  # the question cannot be written as JSON, so it cannot be sent to another process
]


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of one completion. It is None when the completion is unscorable, and `cause` says why."""

    reward: float | None
    cause: Cause | None = None
    detail: str = ""
    """For people: the exception's message, for example."""


class TooManyUnscorable(RuntimeError):
    """So many completions of a batch could not be scored that training on the rest would mean little."""


def as_score(value: Any) -> Score:
    """Check what a verifier or reward function returned for one completion."""
    if value is None:
        return Score(None, "none")
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        reward = float(value)
    except (TypeError, ValueError):
        return Score(None, "not_a_number", f"the reward is {str(value)[:50]!r}")
    return Score(reward) if math.isfinite(reward) else Score(None, "not_finite", f"the reward is {reward}")


def check_share(scores: Sequence[Score], max_unscorable: float) -> None:
    """Raise `TooManyUnscorable` when more than this share of the batch has no reward."""
    lost = [score for score in scores if score.reward is None]
    if len(lost) <= max_unscorable * len(scores):
        return
    causes = ", ".join(f"{cause} {count}" for cause, count in Counter(s.cause for s in lost).most_common())
    detail = next((f" For example: {score.detail}" for score in lost if score.detail), "")
    raise TooManyUnscorable(
        f"{len(lost)} of {len(scores)} completions could not be scored ({causes}), more than the allowed "
        f"share max_unscorable={max_unscorable:g}.{detail} Mend the verifier or its limits, or allow more."
    )
