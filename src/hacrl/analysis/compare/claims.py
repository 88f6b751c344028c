"""Claims about methods, judged by the intervals of their differences, and their section of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hacrl.analysis.compare.report import DASH, cost_title, markdown_table, measure_title, signed
from hacrl.analysis.compare.results import Experiment, equal_budgets
from hacrl.analysis.compare.statistics import (
    Array,
    Estimate,
    Measured,
    Verdict,
    holm_levels,
    measure,
    verdict_of,
    within_range,
)
from hacrl.analysis.compare.suite import Claim

Holding = Literal["holds", "does not hold", "not decided"]
HOLDING: dict[Verdict, Holding] = {
    "better": "holds",
    "worse": "does not hold",
    "no difference seen": "not decided",
}
JUDGING = (
    "Each claim is a difference between two methods with its interval, corrected over the settings of the "
    "claim. It *holds* if the whole interval lies above 0, or above minus the margin if the claim has one. "
    "It *does not hold* if the whole interval lies below. Otherwise these runs leave it *not decided*. "
    "Nothing is corrected for the number of claims: of twenty, one may be decided by chance. A "
    "claim about several methods or about each agent holds if it holds for all of them; it is shown for the "
    "one that speaks most against it. A claim counts every seed that both its methods have: as long as the "
    "plan is not finished that can be more than the tables show, and the cell says how many."
)


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The verdict on a claim in one setting."""

    difference: Estimate
    """The better method minus the worse one."""
    holding: Holding
    whose: str = ""
    """The method or agent that decides, if there are several."""
    units: int = 0
    """Independent results behind it: seeds, or the base models behind them."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a claim says about one setting; all of it has to hold."""

    measured: dict[str, Measured]
    """By method or agent: the difference plus the margin."""

    @property
    def decisive(self) -> str:
        """What speaks most against the claim."""
        return min(self.measured, key=lambda name: _against(self.measured[name]))

    @property
    def p(self) -> float:
        """Of the decisive one.

        For a claim that all differences are positive the largest p decides, without any correction: it is
        wrong only if that one is. Against the claim speaks any of them, so a negative one is corrected.
        """
        found = self.measured[self.decisive]
        return found.p if found.mean > 0 else min(1.0, found.p * len(self.measured))

    def finding(self, level: float, margin: float) -> ClaimFinding:
        """The verdict at a level of error."""
        found = self.measured[self.decisive]
        interval = found.interval(level if found.mean > 0 else max(level / len(self.measured), found.finest))
        whose = self.decisive if len(self.measured) > 1 else ""
        return ClaimFinding(_moved(interval, -margin), HOLDING[verdict_of(interval)], whose, found.seeds)


def _against(found: Measured) -> tuple[float, float]:
    """Lower, the more a difference speaks against being positive; of equal ones the smaller comes first."""
    return (found.p - 1 if found.mean <= 0 else 1 - found.p), found.mean


def judge(claim: Claim, settings: Mapping[str, Experiment]) -> dict[str, ClaimFinding]:
    """By setting that has both methods: holds if the interval lies above -margin, does not if it lies below.

    The settings of a claim are one family of comparisons.
    """
    found = {
        setting: Evidence({whose: measure(values + claim.margin) for whose, values in differences.items()})
        for setting, experiment in settings.items()
        if claim.settings is None or setting in claim.settings
        if (differences := _differences(claim, experiment))
    }
    levels = holm_levels([evidence.p for evidence in found.values()])
    return {
        setting: evidence.finding(level, claim.margin)
        for (setting, evidence), level in zip(found.items(), levels, strict=True)
    }


def _differences(claim: Claim, experiment: Experiment) -> dict[str, Array]:
    """[unit, problem] by rival, of the mean of the agents or by agent if the claim is about each."""
    outcomes, rivals = experiment.outcomes, compared_with(claim, experiment)
    if not rivals or claim.measure not in outcomes.measures(outcomes.tasks[0]):
        return {}
    found: dict[str, Array] = {}
    for rival in rivals:
        scored = experiment.pair(claim.better, rival).scored(outcomes.tasks[0], claim.measure)
        difference = scored[claim.better] - scored[rival]
        if claim.agents == "mean":
            found[rival] = difference.mean(axis=0)
        else:
            named = rival + ": " if len(rivals) > 1 else ""
            found |= {f"{named}{agent}": own for agent, own in zip(outcomes.agents, difference, strict=True)}
    return found


def compared_with(claim: Claim, experiment: Experiment) -> list[str]:
    """The claim's rivals that were run in a setting, with equal budgets if the claim says so."""
    results = experiment.results
    if claim.better not in results.methods:
        return []
    return [
        rival
        for rival in claim.rivals
        if rival in results.methods and equal_budgets(results, rival, claim.better, claim.equal)
    ]


def _moved(interval: Estimate, by: float) -> Estimate:
    moved = replace(interval, mean=interval.mean + by, low=interval.low + by, high=interval.high + by)
    return within_range(moved, -1.0)


def claims_section(claims: Sequence[Claim], settings: Mapping[str, Experiment]) -> Iterator[str]:
    """The part of the page about all claims, in Markdown: a sentence about each, and a table."""
    yield "## Claims"
    yield JUDGING
    judged = [(claim, judge(claim, settings)) for claim in claims]
    yield "\n".join(
        f"- {claim.text}: {_counted(found)}.{_named_rivals(claim, settings)}" for claim, found in judged
    )
    rows = []
    for claim, found in judged:
        margin = f", margin {claim.margin:g}" if claim.margin else ""
        each = ", each agent" if claim.agents == "each" else ""
        name = measure_title(claim.measure, next(iter(settings.values())).results).lower()
        heading = f"{claim.text} ({name}: {claim.better} - {_listed(claim)}{margin}{each})"
        rows.append([heading, *(_cell(found.get(name), shown) for name, shown in settings.items())])
    yield markdown_table(["claim", *settings], rows)


def _listed(claim: Claim) -> str:
    if len(claim.rivals) == 1:
        return claim.rivals[0]
    equal = " and ".join(cost_title(cost) for cost in claim.equal)
    return f"best of {len(claim.rivals)} others" + (f" with equal {equal}" if equal else "")


def _named_rivals(claim: Claim, settings: Mapping[str, Experiment]) -> str:
    """Of a claim about methods that cost as much: which these are in each setting, unless all do."""
    named = []
    for setting, experiment in settings.items():
        there = experiment.results.methods
        if claim.better not in there or setting not in (claim.settings or settings):
            continue
        rivals = compared_with(claim, experiment)
        if len(rivals) < sum(rival in there for rival in claim.rivals):
            named.append(f"{setting}: {', '.join(rivals) or 'none'}")
    cost = " and ".join(cost_title(cost) for cost in claim.equal)
    return f" Others with as many {cost}, within 10%: {'; '.join(named)}." if named else ""


def _counted(found: Mapping[str, ClaimFinding]) -> str:
    """In which settings a claim holds, does not hold or is not decided."""
    by_holding = {
        holding: [setting for setting, finding in found.items() if finding.holding == holding]
        for holding in HOLDING.values()
    }
    parts = [f"{holding} in {', '.join(settings)}" for holding, settings in by_holding.items() if settings]
    return "; ".join(parts) or "was not tested"


def _cell(finding: ClaimFinding | None, experiment: Experiment) -> str:
    if finding is None:
        return DASH
    notes = [finding.whose] if finding.whose else []
    if finding.units > len(experiment.outcomes.units):
        notes.append(f"{finding.units} seeds")
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"{signed(finding.difference)}{noted} **{finding.holding}**"
