"""Claims about methods, judged by nothing but the intervals of their differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hacrl.experiments.outcomes import Outcomes
from hacrl.experiments.statistics import Estimate, Verdict, compare
from hacrl.experiments.suite import Claim

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

    All settings of a claim are one family of comparisons.
    """
    differences = {}
    for setting, outcomes in settings.items():
        asked = claim.settings is None or setting in claim.settings
        methods = outcomes.plan.recipes
        if (
            asked
            and claim.better in methods
            and claim.worse in methods
            and claim.measure in outcomes.measures
        ):
            scored = outcomes.scored(outcomes.tasks[0], claim.measure)
            differences[setting] = (scored[claim.better] - scored[claim.worse]).mean(axis=0)
    shifted = compare({setting: values + claim.margin for setting, values in differences.items()})
    return {
        setting: Finding(_moved(found.interval, -claim.margin), HOLDING[found.verdict])
        for setting, found in shifted.items()
    }


def _moved(interval: Estimate, by: float) -> Estimate:
    return replace(interval, mean=interval.mean + by, low=interval.low + by, high=interval.high + by)
