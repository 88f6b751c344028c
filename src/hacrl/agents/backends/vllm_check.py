"""What becomes of a response whose log-probs the engine and the trained model see differently."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hacrl.agents.sampler import Drawn
from hacrl.agents.settings import VllmSettings
from hacrl.types import EngineCheck


def checked(
    drawn: Sequence[Drawn], scores: Sequence[tuple[float, ...]], settings: VllmSettings
) -> list[Drawn]:
    """The responses with the log-probs training shall use; `scores` are those of the trained model."""
    return [_checked(response, score, settings) for response, score in zip(drawn, scores, strict=True)]


def _checked(response: Drawn, score: tuple[float, ...], settings: VllmSettings) -> Drawn:
    pairs = zip(response.token_logps, score, strict=True)
    difference = max(abs(engine - trainer) for engine, trainer in pairs)
    rescored = difference > settings.max_logprob_difference
    weight = 1.0
    if rescored and settings.correction == "truncated":
        weight = _truncated(sum(score) - sum(response.token_logps), settings.correction_cap)
    check = EngineCheck(
        engine_logp=sum(response.token_logps) / len(score),
        trainer_logp=sum(score) / len(score),
        difference=difference,
        rescored=rescored,
        weight=weight,
    )
    return replace(response, token_logps=score if rescored else response.token_logps, engine=check)


def _truncated(log_ratio: float, cap: float) -> float:
    """The importance weight of the whole response, cut off at the cap."""
    return math.exp(min(log_ratio, math.log(cap)))
