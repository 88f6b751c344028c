"""Distance between each method's expected gradient and the true one, by distance between the agents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, stdev

import torch

from hacrl.algorithm.diagnostics import cosine
from hacrl.analysis.audit.enumeration import (
    Enumerable,
    ToyTeam,
    expected_gradients,
    random_team,
    true_gradient,
)
from hacrl.methods.gspo import Gspo
from hacrl.methods.hacpo import Hacpo
from hacrl.methods.naive import Naive

DISTANCES = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Between the two agents: standard deviation of the difference between their logits."""
TEAMS = 10
"""Random pairs of agents behind each row."""
SIZES = {"prompts": 4, "symbols": 3, "length": 3}
GSPO = Gspo()
METHODS = (
    GSPO,
    Naive(),
    Hacpo(),
    Hacpo(delta=0.5),
    Hacpo(delta=0.8),
    Hacpo(alpha=0.0),
    Hacpo(alpha=3.0),
)
"""What `hacrl audit --toy` compares."""


@dataclass(frozen=True, slots=True)
class ToyRow:
    """One method at one distance: means over random pairs of agents."""

    distance: float
    kl: float
    """KL(peer || learner) between whole responses."""
    method: str
    settings: str
    """Settings of the method that differ from their defaults."""
    cosine: float
    """Between the expected gradient (own and peers' part) and the true one."""
    cosine_error: float
    """Standard error over the pairs; the expectation itself is exact."""
    peers_cosine: float
    """Of the peers' part alone; NaN where there is none."""
    scale: float
    """Projection of the expected gradient on the true one, over the norm of the true one."""
    bias: float
    """|expected - true| / |true|."""


def toy_rows(methods: Sequence[Enumerable] = METHODS, *, samples: int = 8, seed: int = 0) -> list[ToyRow]:
    """Every method at every distance, for the first of two agents."""
    with _one_thread():
        return [_row(distance, method, samples, seed) for distance in DISTANCES for method in methods]


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors are tiny: with more threads it is slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _row(distance: float, method: Enumerable, samples: int, seed: int) -> ToyRow:
    teams = [
        random_team((0.0, distance), **SIZES, samples=samples, seed=seed + number) for number in range(TEAMS)
    ]
    measured = [_compare(team, method) for team in teams]
    cosines, peers, scales, biases = zip(*measured, strict=True)
    return ToyRow(
        distance=distance,
        kl=fmean(team.kl(1, 0) for team in teams),
        method=method.label,
        settings=", ".join(f"{key} {value}" for key, value in _changed(method).items()),
        cosine=fmean(cosines),
        cosine_error=stdev(cosines) / math.sqrt(TEAMS),
        peers_cosine=fmean(peers),
        scale=fmean(scales),
        bias=fmean(biases),
    )


def _changed(method: Enumerable) -> dict[str, object]:
    """Settings that differ from their defaults, except those in the label."""
    return method.model_dump(exclude_defaults=True, exclude={"name", "without"})


def _compare(team: ToyTeam, method: Enumerable) -> tuple[float, float, float, float]:
    """Cosine, cosine of the peers' part, scale and relative bias for the first agent."""
    true = true_gradient(team, 0)
    own, peers = expected_gradients(team, 0, method)
    together = own + peers
    return (
        cosine(together, true),
        cosine(peers, true),
        float(together @ true / (true @ true)),
        float((together - true).norm() / true.norm()),
    )
