"""Numbers that look wrong: from which bound on, what it means, what to change.

Training (`hacrl.training.alerts`), reports and audits judge by these. A method adds symptoms of its own, or
gives a common one the advice that its settings allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

PATIENCE = 10
"""Measurements in a row that a number has to look wrong before training says so."""
AUDIT_PATIENCE = 3
"""The same for what is only measured every few steps."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A bound on one measured number."""

    measure: str
    """What follows the agent or pair in a metric's name, such as `completions/clipped_ratio`."""
    bound: float
    side: Literal["above", "below"]
    """Where it is wrong to be."""
    found: str
    """The number in words, with `{value}` in it."""
    change: str
    """What it means and what to do about it, with the recipe's keys by name."""
    patience: int = PATIENCE
    either_sign: bool = False
    """Whether its size is what counts."""

    def crossed(self, value: float) -> bool:
        """Whether the number looks wrong; one that could not be measured (NaN) does not."""
        size = self._size(value)
        return size > self.bound if self.side == "above" else size < self.bound

    def title(self, who: str, value: float) -> str:
        """Who has it, and the number."""
        return f"{who}: {self.found.format(value=self._size(value))}"

    def message(self, who: str, value: float) -> str:
        """The whole warning."""
        limit = f"{'at most' if self.side == 'above' else 'at least'} {self.bound:g} expected"
        return f"{self.title(who, value)} ({limit}). {self.change}"

    def _size(self, value: float) -> float:
        return abs(value) if self.either_sign else value


COMMON = (
    Symptom(
        "accuracy",
        1e-9,
        "below",
        "none of its responses was right",
        "Easier prompts or more samples_per_prompt can give it a first success.",
    ),
    Symptom(
        "scored",
        1e-9,
        "below",
        "none of its responses could be scored",
        "So it learns nothing: look at its responses (hacrl trajectories) and at the verifier.",
    ),
    Symptom(
        "nonzero_advantage",
        1e-9,
        "below",
        "every advantage was 0",
        "All rewards of each prompt are equal: the prompts are too easy or too hard for everybody. Change "
        "the task's difficulty.",
    ),
    Symptom(
        "frac_reward_zero_std",
        0.8,
        "above",
        "{value:.0%} of its prompts had equal rewards",
        "When all responses of a group get the same reward, every advantage is 0 and the prompt teaches "
        "nothing. The task is too easy or too hard at this point, or samples_per_prompt is too small.",
    ),
    Symptom(
        "completions/clipped_ratio",
        0.1,
        "above",
        "{value:.0%} of its responses were cut at the token limit",
        "A cut response is usually scored as wrong. Raise sampling.max_new_tokens, or look at the responses "
        "(hacrl trajectories): does the agent still end them?",
    ),
    Symptom(
        "unscored",
        0.0,
        "above",
        "{value:.3g} of its responses per step could not be scored",
        "They are left out of training, never counted as wrong. The metrics unscorable/... name the causes.",
    ),
    Symptom(
        "zero_gradient",
        0.9,
        "above",
        "{value:.0%} of the source's responses have no gradient",
        "Most of what is shared is not learned from: change the task's difficulty, or raise "
        "samples_per_prompt.",
    ),
    Symptom(
        "ess_ratio",
        0.3,
        "below",
        "the effective sample size is only {value:.0%} of the responses that have a gradient",
        "The weights are very unequal: a few responses decide each update.",
    ),
    Symptom(
        "weight/largest",
        10.0,
        "above",
        "one response counts {value:.1f} times in an update",
        "A lone right response among very many weighs a lot: lower samples_per_prompt, or raise "
        "prompts_per_step.",
    ),
    Symptom(
        "noise",
        3.0,
        "above",
        "the source's gradient is {value:.1f} times as noisy as the learner's own",
        "Too few of its responses count: raise prompts_per_step or samples_per_prompt.",
    ),
    Symptom(
        "cosine",
        0.0,
        "below",
        "the source's gradient points against the learner's own (cosine {value:.2f})",
        "Leave the pair out of exchange.topology.",
        patience=AUDIT_PATIENCE,
    ),
    Symptom(
        "cosine_wrong",
        -0.1,
        "below",
        "the gradient of the source's wrong responses points against the learner's own (cosine {value:.2f})",
        "They are pushed down where the learner is heading itself. Leave the pair out of exchange.topology.",
        patience=AUDIT_PATIENCE,
    ),
)


def advised(symptoms: Iterable[Symptom], changes: Mapping[str, str]) -> list[Symptom]:
    """The symptoms that `changes` names by their measures, with that advice in place of theirs."""
    known = {symptom.measure: symptom for symptom in symptoms}
    return [replace(known[measure], change=change) for measure, change in changes.items()]


def with_own(own: Iterable[Symptom]) -> dict[str, Symptom]:
    """By measure: the common symptoms, with a method's own added or in their place."""
    return {symptom.measure: symptom for symptom in (*COMMON, *own)}


def warnings(symptoms: Mapping[str, Symptom], who: str, values: Mapping[str, float]) -> list[str]:
    """A message for every number that looks wrong; numbers that nothing is known of are passed over."""
    return [
        symptoms[measure].message(who, value)
        for measure, value in values.items()
        if measure in symptoms and symptoms[measure].crossed(value)
    ]
