"""Ratios and gradient coefficients of every pair over a whole run, from its update log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hacrl.analysis.report.series import MOST_STEPS, rounded, spread
from hacrl.runs.files import file_status
from hacrl.runs.reader import RunReader
from hacrl.runs.updates import LoggedUpdate, read_updates

FINE = 100
"""Bins per unit of the ratio while counting; the report merges them."""
LARGEST = 3 * FINE
"""The last bin: all ratios of 3 and more."""
MOST_BINS = 45
MOST_PERIODS = 8
Pair = tuple[str, str]
"""Source, learner."""


@dataclass
class StepCounts:
    """Totals of one step's update log."""

    ratios: dict[Pair, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Peers' responses by bin of their ratio."""
    coefficients: dict[Pair, float] = field(default_factory=lambda: defaultdict(float))
    """Sum of |gradient coefficient|, each divided by the size of its mini-batch."""
    lowers: list[float] = field(default_factory=list)
    """Lower bounds of the window at the updates on peers' responses."""


def ratio_data(run: RunReader) -> dict[str, Any] | None:
    """Histograms of ratios, and each source's share of the gradient; None if the run kept no update log."""
    agents = frozenset(run.sources)
    files = run.update_files().items()
    steps = {step: _count(path, file_status(path).st_mtime_ns, agents) for step, path in files}
    if not steps:
        return None
    width, first, bins = _bins(list(steps.values()))
    pairs = sorted({pair for counts in steps.values() for pair in counts.ratios})
    periods = [list(steps)[start:end] for start, end in _periods(len(steps))]
    shown = spread(list(steps), MOST_STEPS)
    lowers = [lower for counts in steps.values() for lower in counts.lowers]
    return {
        "first": first / FINE,
        "width": width / FINE,
        "window": [min(lowers), max(lowers)] if lowers else None,
        "periods": [[period[0], period[-1]] for period in periods],
        "counts": {
            "->".join(pair): [
                _merge([steps[step].ratios.get(pair, Counter()) for step in period], width, first, bins)
                for period in periods
            ]
            for pair in pairs
        },
        "coefficients": {
            "steps": shown,
            "shares": {
                "->".join(pair): [rounded(_share(steps[step].coefficients, pair)) for step in shown]
                for pair in sorted({pair for counts in steps.values() for pair in counts.coefficients})
            },
        },
    }


@lru_cache(maxsize=4096)
def _count(path: Path, written: int, agents: frozenset[str]) -> StepCounts:
    """Totals of a file, cached by the time it was `written`."""
    counts = StepCounts()
    for update in read_updates(path, agents).updates:
        _add(counts, update)
    return counts


def _add(counts: StepCounts, update: LoggedUpdate) -> None:
    learner, sources = update.learner, update.source
    if update.window and any(source != learner for source in sources):
        counts.lowers.append(update.window[0])
    for source, ratio, coefficient in zip(sources, update.ratio, update.coefficient, strict=True):
        counts.coefficients[source, learner] += abs(coefficient) / len(sources)
        if source != learner and ratio is not None:
            counts.ratios[source, learner][min(LARGEST, int(ratio * FINE + 1e-9))] += 1


def _share(coefficients: Mapping[Pair, float], pair: Pair) -> float | None:
    """A source's share of the learner's gradient coefficients in a step."""
    total = sum(value for (_, learner), value in coefficients.items() if learner == pair[1])
    return coefficients.get(pair, 0.0) / total if total else None


def _bins(steps: Sequence[StepCounts]) -> tuple[int, int, int]:
    """Width of a bin and first bin, in fine bins, and number of bins: 99% of the ratios, and the window."""
    total_counts: Counter[int] = sum((c for counts in steps for c in counts.ratios.values()), Counter())
    low, high = FINE, FINE
    seen, total = 0, sum(total_counts.values())
    for place in sorted(total_counts):
        seen += total_counts[place]
        if seen > 0.005 * total:
            low = min(low, place)
            high = max(high, place)
        if seen >= 0.995 * total:
            break
    lowers = [lower for counts in steps for lower in counts.lowers]
    low = min([low, *(int(lower * FINE) for lower in lowers)])
    width = next(w for w in (1, 2, 4, 5, 10) if (high - low) / w < MOST_BINS - 2 or w == 10)
    first = low // width * width
    return width, first, (high - first) // width + 1


def _merge(counters: Sequence[Counter[int]], width: int, first: int, bins: int) -> list[int]:
    """Counts by bin; ratios beyond the ends are in the first and the last."""
    counts = [0] * bins
    for counter in counters:
        for place, count in counter.items():
            counts[max(0, min(bins - 1, (place - first) // width))] += count
    return counts


def _periods(steps: int) -> Iterator[tuple[int, int]]:
    """Bounds of equal parts of the run."""
    parts = min(MOST_PERIODS, steps)
    bounds = [steps * part // parts for part in range(parts + 1)]
    yield from pairwise(bounds)
