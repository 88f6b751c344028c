"""Ratios and gradient coefficients from a run's update log: histograms per pair, and who moved whom."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hacrl.analysis.report.series import MOST_STEPS, rounded, spread
from hacrl.runs.directory import RunDirectory

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
    """One step's updates, added up."""

    ratios: dict[Pair, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Peers' responses by bin of their ratio."""
    weight: dict[Pair, float] = field(default_factory=lambda: defaultdict(float))
    """Sum of the pulls' sizes, each as a share of its update."""
    lowers: list[float] = field(default_factory=list)
    """Lower ends of the window at the updates that saw peers' responses."""


def ratio_data(run: Path) -> dict[str, Any] | None:
    """Histograms and shares of the gradient for the report; None when the run kept no updates."""
    steps = {step: _counts_of(path) for step, path in update_files(run).items()}
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
        "weight": {
            "steps": shown,
            "shares": {
                "->".join(pair): [rounded(_share(steps[step].weight, pair)) for step in shown]
                for pair in sorted({pair for counts in steps.values() for pair in counts.weight})
            },
        },
    }


def update_files(run: Path) -> dict[int, Path]:
    """The files of a run's update log by step."""
    paths = sorted(RunDirectory(run).updates.glob("step_*.jsonl"))
    return {int(path.stem.removeprefix("step_")): path for path in paths}


def read_updates(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of one file; the first holds the prompts."""
    with path.open(encoding="utf-8") as file:
        for row, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, row {row} is not JSON: {error}") from error


def _counts_of(path: Path) -> StepCounts:
    return _count(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _count(path: Path, written: int) -> StepCounts:
    """Add up a file; one that was not written again since is not read again."""
    counts = StepCounts()
    for update in read_updates(path):
        if "prompts" not in update:
            _add(counts, update)
    return counts


def _add(counts: StepCounts, update: Mapping[str, Any]) -> None:
    learner, sources = update["learner"], update["source"]
    if update["window"] and any(source != learner for source in sources):
        counts.lowers.append(update["window"][0])
    for source, ratio, coefficient in zip(sources, update["ratio"], update["coefficient"], strict=True):
        counts.weight[source, learner] += abs(coefficient) / len(sources)
        if source != learner and ratio is not None:
            counts.ratios[source, learner][min(LARGEST, int(ratio * FINE + 1e-9))] += 1


def _share(weight: Mapping[Pair, float], pair: Pair) -> float | None:
    """A source's share of everything that pulled the learner in a step."""
    total = sum(value for (_, learner), value in weight.items() if learner == pair[1])
    return weight.get(pair, 0.0) / total if total else None


def _bins(steps: Sequence[StepCounts]) -> tuple[int, int, int]:
    """Width of a bin and the first one, in fine bins, and how many: nearly all ratios and the window."""
    together: Counter[int] = sum((c for counts in steps for c in counts.ratios.values()), Counter())
    low, high = FINE, FINE
    seen, total = 0, sum(together.values())
    for place in sorted(together):
        seen += together[place]
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
    """The run in equal parts, as bounds of ranges."""
    parts = min(MOST_PERIODS, steps)
    bounds = [steps * part // parts for part in range(parts + 1)]
    yield from pairwise(bounds)
