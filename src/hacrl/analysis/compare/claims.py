"""Claims about methods, judged by the intervals of their differences, and their section of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.report import DASH, markdown_table, signed
from hacrl.analysis.compare.statistics import Array, Estimate, Verdict, compare
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
    "It *does not hold* if the whole interval lies below. Otherwise these runs leave it *not decided*. A "
    "claim about each agent is shown for the agent with the strongest evidence against it."
)


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The verdict on a claim in one setting."""

    difference: Estimate
    """The better method minus the worse one."""
    holding: Holding


def judge(claim: Claim, settings: Mapping[str, Outcomes]) -> dict[str, ClaimFinding]:
    """By setting that has both methods: holds if the interval lies above -margin, does not if it lies below.

    All settings of a claim, and all agents if it is about each agent, are one family of comparisons.
    """
    differences = {
        (setting, whose): values + claim.margin
        for setting, outcomes in settings.items()
        if claim.settings is None or setting in claim.settings
        for whose, values in _differences(claim, outcomes).items()
    }
    findings: dict[str, ClaimFinding] = {}
    for (setting, _), found in compare(differences).items():
        finding = ClaimFinding(_moved(found.interval, -claim.margin), HOLDING[found.verdict])
        findings[setting] = min(findings.get(setting, finding), finding, key=_doubt)
    return findings


def _differences(claim: Claim, outcomes: Outcomes) -> dict[str, Array]:
    """[seed, problem] of the mean of the agents, or by agent if the claim is about each."""
    methods = outcomes.plan.recipes
    if claim.better not in methods or claim.worse not in methods or claim.measure not in outcomes.measures:
        return {}
    scored = outcomes.scored(outcomes.tasks[0], claim.measure)
    difference = scored[claim.better] - scored[claim.worse]
    if claim.agents == "mean":
        return {"": difference.mean(axis=0)}
    return dict(zip(outcomes.agents, difference, strict=True))


def _doubt(finding: ClaimFinding) -> tuple[int, float]:
    """Lowest for the strongest evidence against the claim: a setting is judged by its worst agent."""
    order = ("does not hold", "not decided", "holds")
    return order.index(finding.holding), finding.difference.low


def _moved(interval: Estimate, by: float) -> Estimate:
    return replace(interval, mean=interval.mean + by, low=interval.low + by, high=interval.high + by)


def claims_section(claims: Sequence[Claim], settings: Mapping[str, Outcomes]) -> Iterator[str]:
    """The part of the page about all claims, in Markdown: a sentence about each, and a table."""
    yield "## Claims"
    yield JUDGING
    judged = [(claim, judge(claim, settings)) for claim in claims]
    yield "\n".join(f"- {claim.text}: {_counted(found)}." for claim, found in judged)
    rows = []
    for claim, found in judged:
        margin = f", margin {claim.margin:g}" if claim.margin else ""
        each = ", each agent" if claim.agents == "each" else ""
        heading = f"{claim.text} ({claim.better} - {claim.worse}{margin}{each})"
        rows.append([heading, *(_cell(found.get(setting)) for setting in settings)])
    yield markdown_table(["claim", *settings], rows)


def _counted(found: Mapping[str, ClaimFinding]) -> str:
    """In which settings a claim holds, does not hold or is not decided."""
    by_holding = {
        holding: [setting for setting, finding in found.items() if finding.holding == holding]
        for holding in HOLDING.values()
    }
    parts = [f"{holding} in {', '.join(settings)}" for holding, settings in by_holding.items() if settings]
    return "; ".join(parts) or "was not tested"


def _cell(finding: ClaimFinding | None) -> str:
    return f"{signed(finding.difference)} **{finding.holding}**" if finding else DASH
