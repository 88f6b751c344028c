"""Who is believed to be good at which prompts, and how right that was, from a run's belief log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hacrl.analysis.report.series import rounded, spread
from hacrl.runs.beliefs import LoggedBelief, read_beliefs
from hacrl.runs.files import file_status
from hacrl.runs.reader import RunReader

BINS = 10
MOST_POINTS = 300
"""Prompts of a step that the map shows."""


def belief_data(run: RunReader) -> dict[str, Any] | None:
    """By learner: the map of the last step's prompts, and predictions against outcomes over the whole run.

    None if the run has no belief log.
    """
    agents = frozenset(run.sources)
    files = run.belief_files().items()
    steps = {step: _read(path, file_status(path).st_mtime_ns, agents) for step, path in files}
    if not steps:
        return None
    last = max(steps)
    return {
        "step": last,
        "maps": {belief.learner: _map(belief) for belief in steps[last]},
        "calibration": {
            learner: _calibration([b for step in steps.values() for b in step if b.learner == learner])
            for learner in sorted({b.learner for step in steps.values() for b in step})
        },
    }


@lru_cache(maxsize=4096)
def _read(path: Path, written: int, agents: frozenset[str]) -> list[LoggedBelief]:
    """A step's file, cached by the time it was `written`."""
    return read_beliefs(path, agents)


def _map(belief: LoggedBelief) -> dict[str, Any]:
    """Prompts on a plane, with each agent's chance of success there."""
    shown = spread(list(range(len(belief.prompt_id))), MOST_POINTS)
    return {
        "prompts": [belief.prompt_id[place] for place in shown],
        "x": [rounded(belief.x[place]) for place in shown],
        "y": [rounded(belief.y[place]) for place in shown],
        "chances": {name: [column[place] for place in shown] for name, column in belief.believed.items()},
    }


def _calibration(beliefs: Sequence[LoggedBelief]) -> list[dict[str, Any]]:
    """Predictions made before the outcomes, in tenths: how many, their mean, and the mean share they met.

    The first step's are left out: nothing was known then.
    """
    counts, predicted, measured = [0] * BINS, [0.0] * BINS, [0.0] * BINS
    for belief in beliefs[1:]:
        for agent, chances in belief.predicted.items():
            for chance, share in zip(chances, belief.share[agent], strict=True):
                if share is not None:
                    place = min(BINS - 1, max(0, int(chance * BINS)))
                    counts[place] += 1
                    predicted[place] += chance
                    measured[place] += share
    return [
        {
            "count": counts[n],
            "predicted": rounded(predicted[n] / counts[n]),
            "measured": rounded(measured[n] / counts[n]),
        }
        for n in range(BINS)
        if counts[n]
    ]
