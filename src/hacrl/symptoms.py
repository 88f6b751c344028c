"""Metrics that look wrong: the bound, what crossing it means, and what to change.

Training (`hacrl.training.alerts`), reports and audits use these. A method adds symptoms of its own, or
replaces the advice of a common one by advice on its own settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

PATIENCE = 10
"""Consecutive measurements beyond the bound before training warns."""
AUDIT_PATIENCE = 3
"""The same for metrics that are only measured every few steps."""
_GETS_WORSE = (
    "Its updates do it harm: lower its learning rate (agents.N.learning_rate), raise prompts_per_step "
    "so that no single response decides an update, or raise optimiser.kl. evaluation.keep: best exports the "
    "best weights instead of the last."
)


@dataclass(frozen=True, slots=True)
class Symptom:
    """A bound on one metric."""

    measure: str
    """What follows the agent or pair in a metric's name, such as `completions/clipped_ratio`."""
    bound: float
    side: Literal["above", "below"]
    """The side of the bound that looks wrong."""
    found: str
    """What was measured, with a placeholder `{value}`."""
    change: str
    """What it means and what to do about it, with the recipe's keys by name."""
    patience: int = PATIENCE
    either_sign: bool = False
    """Whether the absolute value is compared."""

    def crossed(self, value: float) -> bool:
        """Whether the value is beyond the bound; NaN, which was not measured, is not."""
        size = self._size(value)
        return size > self.bound if self.side == "above" else size < self.bound

    def title(self, who: str, value: float) -> str:
        """The agent or pair, and what was measured."""
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
        "It learns nothing: look at its responses (hacrl trajectories) and at the verifier.",
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
        "When all responses of a group get the same reward, every advantage is 0 and the prompt has no "
        "gradient. The task is too easy or too hard at this point, or samples_per_prompt is too small.",
    ),
    Symptom(
        "completions/clipped_ratio",
        0.1,
        "above",
        "{value:.0%} of its responses were cut at the token limit",
        "A cut response is usually scored as wrong. Look at the responses (hacrl trajectories): raise "
        "sampling.max_new_tokens if they are unfinished, set sampling.stop if they go on after their answer.",
    ),
    Symptom(
        "reward_change",
        -3.5,
        "below",
        "its mean reward of the last steps is {value:.1f} standard errors from that of the first",
        _GETS_WORSE,
        patience=3,
    ),
    Symptom(
        "evaluation_change",
        -2.5,
        "below",
        "its accuracy on test problems is {value:.1f} standard errors from that before training",
        _GETS_WORSE,
        patience=1,
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
        "Most shared responses have no effect: change the task's difficulty, or raise samples_per_prompt.",
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
        "one response has a gradient coefficient of {value:.1f}",
        "The only right response in a large group has a large coefficient: lower samples_per_prompt, or "
        "raise prompts_per_step.",
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
        "Pushing them down works against the learner's own updates. Leave the pair out of exchange.topology.",
        patience=AUDIT_PATIENCE,
    ),
)


def advised(symptoms: Iterable[Symptom], changes: Mapping[str, str]) -> list[Symptom]:
    """The symptoms whose measures are in `changes`, with the advice given there."""
    known = {symptom.measure: symptom for symptom in symptoms}
    return [replace(known[measure], change=change) for measure, change in changes.items()]


def with_own(own: Iterable[Symptom]) -> dict[str, Symptom]:
    """By measure: the common symptoms, with a method's own added or replacing them."""
    return {symptom.measure: symptom for symptom in (*COMMON, *own)}


def warnings(symptoms: Mapping[str, Symptom], who: str, values: Mapping[str, float]) -> list[str]:
    """A message for every value that looks wrong; metrics without a symptom are skipped."""
    return [
        symptoms[measure].message(who, value)
        for measure, value in values.items()
        if measure in symptoms and symptoms[measure].crossed(value)
    ]
