"""Sample statistics of every source's responses for every learner, and the direction of their gradient."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from hacrl.algorithm.diagnostics import SampleStatistics, sample_statistics
from hacrl.analysis.audit.draws import Draws
from hacrl.sharing import LearnerBatch
from hacrl.training.step_metrics import weight_bound
from hacrl.training.team import Member, Team
from hacrl.training.updates import (
    Part,
    cosines,
    gradient_coefficients,
    gradients_by_part,
    numbered_updates,
)


@dataclass(frozen=True, slots=True)
class PairAudit:
    """One source's responses in one learner's updates, at the weights of a checkpoint."""

    source: str
    learner: str
    method_metrics: dict[str, float]
    """The method's own metrics of the pair (`Method.pair_metrics`), mean over the groups."""
    statistics: SampleStatistics
    bound: float
    """The largest |w * A| that is possible; infinity where nothing bounds it."""
    noise: float
    """Standard deviation of the source's gradient from step to step, over the norm of its mean."""
    own_noise: float
    """The same of the learner's own gradient."""
    cosine: float
    """Between the source's gradient and the learner's own, both summed over all groups."""
    cosine_right: float
    """Of the responses with a positive advantage."""
    cosine_wrong: float
    """Of the responses with a negative advantage."""


def audit_pairs(team: Team, member: Member, draws: Draws) -> list[PairAudit]:
    """All sources of one learner."""
    learner, sources = member.name, [name for name in team.topology[member.name] if name not in team.retired]
    batches = [step.batches[learner] for step in draws.steps]
    rewards = torch.cat([table.rewards[table.mask] for table in draws.groups])
    totals: dict[Part, Tensor] = {}
    spread: defaultdict[str, Spread] = defaultdict(Spread)
    for batch in batches:
        gradients = gradients_by_part(member.policy, batch)
        for part, gradient in gradients.items():
            totals[part] = totals[part] + gradient if part in totals else gradient
        for name in (learner, *sources):
            spread[name].add([gradient for part, gradient in gradients.items() if part.source == name])
    return [
        PairAudit(
            source=source,
            learner=learner,
            method_metrics=_method_metrics(draws, f"cross/{source}->{learner}/"),
            statistics=_statistics(member, source, batches),
            bound=max(weight_bound(team, source, learner, batch, rewards) for batch in batches),
            noise=spread[source].noise(),
            own_noise=spread[learner].noise(),
            **cosines(totals, learner, source),
        )
        for source in sources
    ]


def _method_metrics(draws: Draws, prefix: str) -> dict[str, float]:
    """Means over the groups that have the metric."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for step in draws.steps:
        for key, value in step.method_metrics.items():
            if key.startswith(prefix):
                found[key.removeprefix(prefix)].append(value)
    return {key: fmean(values) for key, values in found.items()}


class Spread:
    """Mean and variance of a gradient over steps, from running sums: single gradients are not kept."""

    def __init__(self) -> None:
        self._total: Tensor = torch.zeros(1)
        self._squares = 0.0
        self._count = 0

    def add(self, parts: Sequence[Tensor]) -> None:
        """Add one step's gradient, in parts; no parts: a gradient of 0."""
        self._count += 1
        if parts:
            gradient = torch.stack(list(parts)).sum(0)
            self._total = self._total + gradient
            self._squares += float(gradient.double().square().sum())

    def noise(self) -> float:
        """sqrt(tr Var(g)) / |E g|; what the noise adds to the norm of the mean is subtracted.

        Infinity if nothing remains of the norm; NaN if no step had a gradient.
        """
        if not self._squares:
            return math.nan
        mean_square = float((self._total.double() / self._count).square().sum())
        variance = (self._squares / self._count - mean_square) * self._count / max(1, self._count - 1)
        signal = mean_square - variance / self._count
        return math.sqrt(max(0.0, variance) / signal) if signal > 0 else math.inf


def _statistics(member: Member, source: str, batches: Sequence[LearnerBatch]) -> SampleStatistics:
    """Of the source's rows in all batches, at the weights before the first update."""
    coefficients: list[float] = []
    advantages: list[float] = []
    for batch in batches:
        for number, objective, mini_batch in numbered_updates(batch):
            rows = [row for row in mini_batch if row.source == source]
            if rows:
                scores = member.policy.score([(row.prompt_ids, row.response_ids) for row in rows])
                means = [fmean(logps) for logps in scores]
                coefficients += gradient_coefficients(rows, means, objective, number)
                advantages += [row.advantage for row in rows]
    return sample_statistics(torch.tensor(coefficients), torch.tensor(advantages))
