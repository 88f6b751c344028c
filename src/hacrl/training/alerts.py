"""Signs that a run is not learning, each with what it means and what to change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hacrl.training.step import StepRecord
from hacrl.training.team import Team
from hacrl.training.thresholds import THRESHOLDS

PATIENCE = 10
"""Steps in a row after which a condition is reported."""

RETIRE_AFTER = 3
"""Failed updates in a row after which an agent no longer takes part."""


AUDIT_PATIENCE = 3
"""The same for what is only measured every few steps."""

WATCHED = {
    "baseline_bias": ("baseline_bias", PATIENCE),
    "dead": ("dead", PATIENCE),
    "ess_ratio": ("ess_ratio", PATIENCE),
    "weight/largest": ("largest", PATIENCE),
    "cosine": ("cosine", AUDIT_PATIENCE),
    "cosine_wrong": ("cosine_wrong", AUDIT_PATIENCE),
}
"""By the end of a metric's name: its threshold, and after how many measurements in a row it is reported."""


class Alerts:
    """Counts conditions over steps; reports each once per agent until it went away."""

    def __init__(self) -> None:
        self._streaks: Counter[str] = Counter()

    def observe(self, team: Team, record: StepRecord, metrics: Mapping[str, float]) -> list[str]:
        """What to tell the user after this step. Retires agents whose updates keep failing."""
        messages = self._beyond(metrics)
        for member in team.active:
            messages += self._agent(team, member.name, record)
        if not team.active:
            raise RuntimeError("no agent is left to train: " + "; ".join(team.retired.values()))
        return messages

    def _agent(self, team: Team, name: str, record: StepRecord) -> list[str]:
        rewards = [t.reward for t in record.trajectories if t.source == name]
        scored = [reward for reward in rewards if reward is not None]
        batch = record.batches[name]
        advantages = [row.advantage for mini_batch in batch.mini_batches for row in mini_batch]
        conditions = {
            "failed": name in record.failures,
            "silent": not scored,
            "zero": bool(scored) and max(scored) <= 0,
            "flat": bool(advantages) and not any(advantages),
        }
        messages = []
        for condition, holds in conditions.items():
            streak = self._count(f"{condition}/{name}", holds)
            if condition == "failed" and holds:
                messages.append(
                    f"{record.failures[name]}. The rest of its updates in step {record.step} is skipped."
                )
                if streak >= RETIRE_AFTER:
                    team.retired[name] = (
                        f"agent {name!r} failed {streak} steps in a row: {record.failures[name]}"
                    )
                    messages.append(
                        f"agent {name!r} no longer takes part after {streak} failed steps in a row."
                    )
            elif streak == PATIENCE:
                messages.append(_ADVICE[condition].format(name=name, steps=PATIENCE))
        return messages

    def _beyond(self, metrics: Mapping[str, float]) -> list[str]:
        """Measured numbers that stay beyond their thresholds; a step without a measurement says nothing."""
        messages = []
        for key, value in metrics.items():
            _, who, name = (*key.split("/", 2), "")[:3]
            if name not in WATCHED or math.isnan(value):
                continue
            threshold, patience = WATCHED[name]
            size = abs(value) if name == "baseline_bias" else value
            if self._count(key, THRESHOLDS[threshold].crossed(size)) == patience:
                messages.append(
                    f"{THRESHOLDS[threshold].warning(who, size)} Measured so {patience} times in a row."
                )
        return messages

    def _count(self, key: str, holds: bool) -> int:
        self._streaks[key] = self._streaks[key] + 1 if holds else 0
        return self._streaks[key]

    def state_dict(self) -> dict[str, int]:
        """Plain JSON values."""
        return {key: count for key, count in sorted(self._streaks.items()) if count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._streaks = Counter({key: int(count) for key, count in state.items()})


_ADVICE = {
    "silent": (
        "agent {name!r}: none of its answers could be scored for {steps} steps, so that it learns nothing: "
        "look at its answers (hacrl trajectories) and at the verifier."
    ),
    "zero": (
        "agent {name!r}: no right answer for {steps} steps. Easier prompts, more samples_per_prompt, or a "
        "stronger peer inside its window (a larger method.delta) can give it a first success."
    ),
    "flat": (
        "agent {name!r}: every advantage was 0 for {steps} steps: all rewards of each prompt are equal. "
        "The prompts are too easy or too hard for everybody: change the task's difficulty."
    ),
}
