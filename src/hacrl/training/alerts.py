"""Warnings while training: symptoms that persist, and agents whose updates fail."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hacrl.symptoms import Symptom
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team

RETIRE_AFTER = 3
"""Failed updates in a row after which an agent no longer takes part."""


class NoAgentLeft(RuntimeError):
    """Every agent's updates keep failing; the message has each one's cause."""


class Alerts:
    """Counts symptoms over steps; warns once per agent or pair until the symptom is gone."""

    def __init__(self, symptoms: Mapping[str, Symptom]) -> None:
        self._symptoms = symptoms
        self._streaks: Counter[str] = Counter()

    def observe(self, team: Team, record: StepRecord, metrics: Mapping[str, float]) -> list[str]:
        """The warnings after this step. Retires agents whose updates keep failing."""
        messages = self.lasting(metrics)
        for member in team.learners:
            messages += self._failures(team, member.name, record)
        if not team.learners:
            raise NoAgentLeft("no agent is left to train: " + "; ".join(team.retired.values()))
        return messages

    def lasting(self, metrics: Mapping[str, float]) -> list[str]:
        """Symptoms that have lasted long enough; steps without a measurement are not counted."""
        messages = []
        for key, value in metrics.items():
            _, who, measure = (*key.split("/", 2), "", "")[:3]
            symptom = self._symptoms.get(measure)
            if symptom is None or math.isnan(value):
                continue
            if self._count(key, symptom.crossed(value)) == symptom.patience:
                messages.append(f"{symptom.message(who, value)} Measured {symptom.patience} times in a row.")
        return messages

    def _failures(self, team: Team, name: str, record: StepRecord) -> list[str]:
        failure = record.failures.get(name)
        streak = self._count(f"failed/{name}", failure is not None)
        if failure is None:
            return []
        messages = [f"{failure}. Its remaining updates in step {record.step} are skipped."]
        if streak >= RETIRE_AFTER:
            team.retired[name] = f"agent {name!r} failed {streak} steps in a row: {failure}"
            messages.append(f"agent {name!r} no longer takes part after {streak} failed steps in a row.")
        return messages

    def _count(self, key: str, holds: bool) -> int:
        self._streaks[key] = self._streaks[key] + 1 if holds else 0
        return self._streaks[key]

    def state_dict(self) -> dict[str, int]:
        """Plain JSON values."""
        return {key: count for key, count in sorted(self._streaks.items()) if count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._streaks = Counter({key: int(count) for key, count in state.items()})
