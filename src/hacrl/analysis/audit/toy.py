"""How far the expected gradient of each method is from the true one, as the agents move apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from hacrl.algorithm import HacpoParams
from hacrl.algorithm.diagnostics import cosine
from hacrl.analysis.audit.enumeration import (
    GSPO,
    NAIVE,
    Rule,
    ToyTeam,
    expected_gradients,
    hacpo_rule,
    random_team,
    true_gradient,
)

DISTANCES = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Between the two agents: standard deviation of the difference of their logits."""
TEAMS = 10
"""Random pairs of agents that a row is the mean of."""
SIZES = {"prompts": 4, "symbols": 3, "length": 3}
RULES = (
    GSPO,
    NAIVE,
    hacpo_rule(HacpoParams()),
    hacpo_rule(HacpoParams(delta=0.5)),
    hacpo_rule(HacpoParams(delta=0.8)),
    hacpo_rule(HacpoParams(alpha=0.0)),
    hacpo_rule(HacpoParams(alpha=3.0)),
)


@dataclass(frozen=True, slots=True)
class ToyRow:
    """One method at one distance: means over random pairs of agents."""

    distance: float
    kl: float
    """KL(peer || learner) between whole responses."""
    method: str
    delta: float | None
    alpha: float | None
    cosine: float
    """Between the expected gradient, own and peers' part together, and the true one."""
    cosine_error: float
    """Standard error over the pairs; the expectation itself is exact."""
    peers_cosine: float
    """Of the peers' part alone; NaN where there is none."""
    scale: float
    """How much of the true gradient the expected one contains; 1 without the division by the spread."""
    bias: float
    """|expected - true| / |true|."""


def toy_rows(rules: Sequence[Rule] = RULES, *, samples: int = 8, seed: int = 0) -> list[ToyRow]:
    """Every rule at every distance, for the first of two agents."""
    with _one_thread():
        return [_row(distance, rule, samples, seed) for distance in DISTANCES for rule in rules]


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: a second thread costs many times what it gives."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _row(distance: float, rule: Rule, samples: int, seed: int) -> ToyRow:
    teams = [
        random_team((0.0, distance), **SIZES, samples=samples, seed=seed + number) for number in range(TEAMS)
    ]
    measured = [_compare(team, rule) for team in teams]
    cosines, peers, scales, biases = zip(*measured, strict=True)
    params = rule.params
    return ToyRow(
        distance=distance,
        kl=fmean(team.kl(1, 0) for team in teams),
        method=rule.name,
        delta=params.delta if params else None,
        alpha=params.alpha if params else None,
        cosine=fmean(cosines),
        cosine_error=stdev(cosines) / math.sqrt(TEAMS),
        peers_cosine=fmean(peers),
        scale=fmean(scales),
        bias=fmean(biases),
    )


def _compare(team: ToyTeam, rule: Rule) -> tuple[float, float, float, float]:
    """Cosine, cosine of the peers' part, scale and relative bias for the first agent."""
    true = true_gradient(team, 0)
    own, peers = expected_gradients(team, 0, rule)
    together = own + peers
    return (
        cosine(together, true),
        cosine(peers, true),
        float(together @ true / (true @ true)),
        float((together - true).norm() / true.norm()),
    )
