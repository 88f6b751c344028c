"""Costs from measured seconds: the smallest relative error that costs of at least 0 allow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np


def fit(amounts: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Least squares of predicted / measured - 1 over the cost of each kind of amount, none of them negative.

    The kinds are few: all choices of those that cost anything are tried.
    """
    measured = np.array(seconds)
    kinds = np.array(amounts) / measured[:, None]
    count = kinds.shape[1]
    best, least = np.zeros(count), np.inf
    for chosen in (list(c) for size in range(1, count + 1) for c in combinations(range(count), size)):
        scale = kinds[:, chosen].max(axis=0)  # the columns differ by many orders of magnitude
        costs = np.linalg.lstsq(kinds[:, chosen] / scale, np.ones(len(measured)), rcond=None)[0] / scale
        error = float(((kinds[:, chosen] @ costs - 1) ** 2).sum())
        if (costs > 0).all() and error < least:
            best, least = np.zeros(count), error
            best[chosen] = costs
    return [float(cost) for cost in best]
