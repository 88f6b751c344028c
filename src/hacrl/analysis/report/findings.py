"""Symptoms in the last steps of a run, each with its meaning and what to change.

They are defined in `hacrl.symptoms` and by the method; a run keeps them in its config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hacrl.analysis.report.series import Column
from hacrl.symptoms import COMMON, Symptom

LATELY = 10
"""Steps at the end of a run that findings are about."""

Finding = dict[str, str]


def findings(series: Mapping[str, Column], symptoms: Sequence[Symptom] = COMMON) -> list[Finding]:
    """Symptoms in the last steps of `agent/NAME/MEASURE` and `cross/SOURCE->LEARNER/MEASURE`."""
    known = {symptom.measure: symptom for symptom in symptoms}
    found = []
    for key, column in series.items():
        _, who, measure = (*key.split("/", 2), "", "")[:3]
        value, symptom = _lately(column), known.get(measure)
        if symptom is not None and value is not None and symptom.crossed(value):
            found.append({"title": symptom.title(who, value), "text": symptom.change})
    return found


def regressions(outcomes: Mapping[str, Any] | None) -> list[Finding]:
    """Measures that are lower after the run than before by more than their 95% intervals."""
    return [
        {
            "title": f"{agent} got worse: {name} on {task} {before['mean']:.3f} to {after['mean']:.3f}",
            "text": "The 95% intervals before and after do not overlap. A lower learning rate, a KL term "
            "(optimiser.kl) or an earlier checkpoint may help.",
        }
        for agent, outcome in (outcomes or {}).items()
        for task, values in outcome["tasks"].items()
        for name, before, after in _measured_twice(values)
        if after["high"] < before["low"]
    ]


def _measured_twice(values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for measure, after in values["after"].items():
        before = (values["before"] or {}).get(measure)
        if before:
            yield measure.replace("_at_k", f"@{values['samples']}"), before, after


def _lately(column: Column) -> float | None:
    values = [value for value in column if value is not None][-LATELY:]
    return sum(values) / len(values) if values else None
