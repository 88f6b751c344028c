"""Methods side by side in one number: each with its interval, and against the references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hacrl.analysis.compare.statistics import Array, Difference, Estimate, compare, measure


@dataclass(frozen=True, slots=True)
class Contrast:
    """A method against a reference."""

    method: str
    reference: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Table:
    """One number under every method. Its contrasts are one family: they are corrected together."""

    methods: dict[str, Estimate]
    contrasts: list[Contrast]


def tabulate(values: Mapping[str, Array], references: Sequence[str]) -> Table:
    """Estimates and contrasts of accuracies [seed, problem] by method."""
    differences = {(m, r): values[m] - values[r] for m, r in pairs(list(values), references)}
    found = compare(differences)
    measured = {method: measure(own) for method, own in values.items()}
    return Table(
        methods={method: within_range(own.interval()) for method, own in measured.items()},
        contrasts=[Contrast(m, r, difference) for (m, r), difference in found.items()],
    )


def pairs(methods: Sequence[str], references: Sequence[str]) -> list[tuple[str, str]]:
    """Every method against every reference; two references are compared with each other once."""
    return [
        (method, reference)
        for number, reference in enumerate(references)
        for method in methods
        if method != reference and method not in references[:number]
    ]


def within_range(estimate: Estimate) -> Estimate:
    """An accuracy's interval without what no accuracy can be."""
    return replace(estimate, low=max(0.0, estimate.low), high=min(1.0, estimate.high))
