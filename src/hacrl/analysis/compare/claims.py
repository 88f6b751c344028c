"""Claims about methods, judged by nothing but the intervals of their differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.statistics import Array, Estimate, Verdict, compare
from hacrl.analysis.compare.suite import Claim

Holding = Literal["holds", "does not hold", "not decided"]
HOLDING: dict[Verdict, Holding] = {
    "better": "holds",
    "worse": "does not hold",
    "no difference seen": "not decided",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one setting says of a claim."""

    difference: Estimate
    """The better method minus the worse one."""
    holding: Holding


def judge(claim: Claim, settings: Mapping[str, Outcomes]) -> dict[str, Finding]:
    """By setting where both methods took part: holds if the interval lies above -margin, does not if below.

    All settings of a claim, and all agents where it is said of each, are one family of comparisons.
    """
    differences = {
        (setting, whose): values + claim.margin
        for setting, outcomes in settings.items()
        if claim.settings is None or setting in claim.settings
        for whose, values in _differences(claim, outcomes).items()
    }
    findings: dict[str, Finding] = {}
    for (setting, _), found in compare(differences).items():
        finding = Finding(_moved(found.interval, -claim.margin), HOLDING[found.verdict])
        findings[setting] = min(findings.get(setting, finding), finding, key=_doubt)
    return findings


def _differences(claim: Claim, outcomes: Outcomes) -> dict[str, Array]:
    """[seed, problem] by what the claim is about: the mean of the agents, or every agent."""
    methods = outcomes.plan.recipes
    if claim.better not in methods or claim.worse not in methods or claim.measure not in outcomes.measures:
        return {}
    scored = outcomes.scored(outcomes.tasks[0], claim.measure)
    difference = scored[claim.better] - scored[claim.worse]
    if claim.agents == "mean":
        return {"": difference.mean(axis=0)}
    return dict(zip(outcomes.agents, difference, strict=True))


def _doubt(finding: Finding) -> tuple[int, float]:
    """The lowest speaks most against the claim: a setting has what its worst agent says."""
    order = ("does not hold", "not decided", "holds")
    return order.index(finding.holding), finding.difference.low


def _moved(interval: Estimate, by: float) -> Estimate:
    return replace(interval, mean=interval.mean + by, low=interval.low + by, high=interval.high + by)
