"""Bounds on what the theory promises, each with what it means to cross it and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound on one measured number."""

    bound: float
    side: Literal["above", "below"]
    """Where it is wrong to be."""
    found: str
    """The number in words, `{value}` in it."""
    change: str
    """What to do about it, keys of the recipe by name."""

    def crossed(self, value: float) -> bool:
        """Whether to warn; a number that could not be measured (NaN) is no reason to."""
        return value > self.bound if self.side == "above" else value < self.bound

    def warning(self, who: str, value: float) -> str:
        """The whole message."""
        limit = f"{'at most' if self.side == 'above' else 'at least'} {self.bound:g} expected"
        return f"{who}: {self.found.format(value=value)} ({limit}). {self.change}"


THRESHOLDS = {
    "baseline_bias": Threshold(
        0.05,
        "above",
        "the baseline is off by {value:.3f} on average over all prompts",
        "Omega lags behind or is clamped (shorten capability.window, widen capability.clamp), or the method "
        "does not use it.",
    ),
    "baseline_kind": Threshold(
        0.1,
        "above",
        "the baseline is off by {value:.3f} on prompts of this kind",
        "One omega does not fit all kinds: train on kinds in which the agents' ratio is alike, or use a "
        "method with the own group's mean (gspo, commons).",
    ),
    "baseline_error": Threshold(
        1.1,
        "above",
        "the baseline's error for one prompt is {value:.2f} times that of the own group's mean",
        "The learner would do better with its own answers alone as a baseline (gspo, commons); "
        "hacpo-no_capability_baseline helps only if the plain mean's error is smaller.",
    ),
    "dead": Threshold(
        0.9,
        "above",
        "{value:.0%} of the source's responses have no gradient",
        "Outside the window: raise method.delta or lower method.delta_step. Without an advantage: change the "
        "task's difficulty or raise samples_per_prompt.",
    ),
    "ess_ratio": Threshold(
        0.3,
        "below",
        "the live responses are worth only {value:.0%} of as many equally weighted ones",
        "The weights are very unequal: lower method.alpha or method.delta.",
    ),
    "largest": Threshold(
        10.0,
        "above",
        "one response counts {value:.1f} times in an update",
        "Lower the upper bound of capability.clamp; a lone right answer among very many weighs a lot, too.",
    ),
    "noise": Threshold(
        3.0,
        "above",
        "the source's gradient is {value:.1f} times as noisy as the own one",
        "Too few of its responses count: raise method.delta, prompts_per_step or samples_per_prompt.",
    ),
    "cosine": Threshold(
        0.0,
        "below",
        "the source's gradient points against the own one (cosine {value:.2f})",
        "Lower method.delta, or leave the pair out of exchange.topology.",
    ),
    "cosine_wrong": Threshold(
        -0.1,
        "below",
        "the gradient of the source's wrong responses points against the own one (cosine {value:.2f})",
        "They are pushed down where the learner goes itself: lower method.delta, so that only responses the "
        "learner might have given count.",
    ),
    "toy": Threshold(
        0.05,
        "above",
        "the expected gradient is further from the true one than that of own responses alone, "
        "by {value:.2f} in cosine",
        "Lower method.delta; compare with gspo before trusting the method at this distance.",
    ),
}


def warnings(who: str, values: dict[str, float]) -> list[str]:
    """A message for every number that is beyond its threshold."""
    return [
        THRESHOLDS[name].warning(who, value)
        for name, value in values.items()
        if THRESHOLDS[name].crossed(value)
    ]
