"""The log-probs that responses were drawn with, compared with those that training computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hacrl.agents.sampler import Drawn
from hacrl.types import EngineCheck


def checked(
    drawn: Sequence[Drawn],
    scores: Sequence[tuple[float, ...]],
    max_difference: float = 0.0,
    cap: float | None = None,
) -> list[Drawn]:
    """The responses with the log-probs to train with, and what was found; `scores` are the trained model's.

    A response that differs by more than `max_difference` at any token gets its scores. With a `cap`, its
    weight is p_trained / p_drawn, at most `cap`.
    """
    return [
        _checked(response, score, max_difference, cap) for response, score in zip(drawn, scores, strict=True)
    ]


def _checked(response: Drawn, score: tuple[float, ...], max_difference: float, cap: float | None) -> Drawn:
    check = compared(response.token_logps, score, max_difference, cap)
    return replace(response, token_logps=score if check.rescored else response.token_logps, engine=check)


def compared(
    drawn: tuple[float, ...], score: tuple[float, ...], max_difference: float = 0.0, cap: float | None = None
) -> EngineCheck:
    """A response's log-probs as it was drawn and as training computes them."""
    difference = max(abs(engine - trainer) for engine, trainer in zip(drawn, score, strict=True))
    rescored = difference > max_difference
    return EngineCheck(
        engine_logp=sum(drawn) / len(score),
        trainer_logp=sum(score) / len(score),
        difference=difference,
        rescored=rescored,
        weight=_truncated(sum(score) - sum(drawn), cap) if rescored and cap is not None else 1.0,
    )


def _truncated(log_ratio: float, cap: float) -> float:
    """The importance weight of the whole response, cut off at the cap."""
    return math.exp(min(log_ratio, math.log(cap)))
