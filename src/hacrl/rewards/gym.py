"""The verifier `reasoning_gym`: the scorer that comes with a reasoning-gym task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hacrl.rewards.extract import marked_answer

try:
    import reasoning_gym
    from reasoning_gym.utils import extract_answer
except ImportError as error:
    raise ImportError("the verifier `reasoning_gym` needs reasoning-gym: pip install 'hacrl[gym]'") from error


def verify(response: str, gold: Any) -> float:
    r"""The task's own score of `<answer>...</answer>`, `\boxed{...}`, `####`, or else of the whole response.

    `gold` is `{"dataset": name, "entry": the data set's entry}`.
    """
    answer = extract_answer(response) or marked_answer(response) or response.strip()
    return float(_scorer(gold["dataset"])(answer=answer, entry=gold["entry"]))


@functools.cache
def _scorer(dataset: str) -> Callable[..., float]:
    return reasoning_gym.get_score_answer_fn(dataset)  # type: ignore[no-any-return]
