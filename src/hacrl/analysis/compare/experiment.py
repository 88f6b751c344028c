"""A finished comparison of one setting, as the page of results asks for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.results import Accuracy, Results
from hacrl.analysis.compare.statistics import Difference, Estimate, verdict_of


@dataclass(frozen=True, slots=True)
class Experiment:
    """What its runs left behind, and what was made of it."""

    outcomes: Outcomes
    results: Results

    def accuracy(self, task: str) -> Accuracy:
        """In the main measure."""
        wanted = self.outcomes.main_measure
        return next(a for a in self.results.accuracies if (a.task, a.measure) == (task, wanted))

    def difference(self, task: str, method: str, reference: str) -> Difference | None:
        """Of the mean of the agents, in the main measure; None where one of both did not run."""
        for contrast in self.accuracy(task).mean.contrasts:
            if (contrast.method, contrast.reference) == (method, reference):
                return contrast.difference
            if (contrast.method, contrast.reference) == (reference, method):
                return _mirrored(contrast.difference)  # two references are compared once
        return None


def _mirrored(difference: Difference) -> Difference:
    found = difference.interval
    interval = Estimate(-found.mean, -found.high, -found.low, found.level)
    return replace(difference, interval=interval, verdict=verdict_of(interval))
