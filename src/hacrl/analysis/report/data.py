"""The data of a report as plain JSON values: all that the page gets."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.analysis.report.beliefs import belief_data
from hacrl.analysis.report.findings import findings, regressions
from hacrl.analysis.report.ratios import ratio_data
from hacrl.analysis.report.responses import response_data
from hacrl.analysis.report.series import columns, outcomes
from hacrl.runs.files import StorageError
from hacrl.runs.reader import NotARun, RunReader
from hacrl.symptoms import COMMON, Symptom

ALONE = "gspo"
"""The method of a baseline: the same agents, each trained alone."""
_BASELINE_CURVES = re.compile(r"agent/[^/]+/(accuracy|reward|eval/.*)")


def warn(text: str) -> None:
    """Tell the user, outside the page."""
    print(f"warning: {text}", file=sys.stderr)


def report_data(
    runs: Sequence[Path], baseline: Path | None = None, warn: Callable[[str], None] = warn
) -> dict[str, Any]:
    """The data of a page on one or several runs; without `baseline`, `find_baseline` looks for each run's.

    `warn` is told of runs beside them that cannot be read.
    """
    names = _names(runs)
    return {
        "runs": [_run(RunReader(path), name, baseline, warn) for path, name in zip(runs, names, strict=True)]
    }


def _run(run: RunReader, name: str, baseline: Path | None, warn: Callable[[str], None]) -> dict[str, Any]:
    alone = baseline_data(baseline, run) if baseline else find_baseline(run, warn)
    curves = columns(run.metrics)
    results = outcomes(run.summary)
    ratios = ratio_data(run)
    symptoms = [Symptom(**rule) for rule in run.symptoms] or COMMON
    return {
        "name": name,
        "recipe": run.recipe,
        "versions": run.versions,
        "agents": run.agents,
        "step": run.metrics[-1]["step"] if run.metrics else 0,
        "finished": run.summary is not None,
        "updated": run.last_written(),
        "lines": len(run.metrics),
        **curves,
        "outcomes": results,
        "seconds": run.summary["seconds"] if run.summary else None,
        "baseline": alone,
        "ratios": ratios,
        "beliefs": belief_data(run),
        "responses": response_data(run),
        "warnings": run.warnings,
        "findings": [*regressions(results), *findings(curves["series"], symptoms)],
    }


def _names(runs: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ: `hacpo/seed_0` and `gspo/seed_0`."""
    resolved = [_resolved(path) for path in runs]
    depth = 1
    while len({path.parts[-depth:] for path in resolved}) < len(set(resolved)):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in resolved]


def find_baseline(run: RunReader, warn: Callable[[str], None] = warn) -> dict[str, Any] | None:
    """A run of the same agents alone, with the same task and seed, where demos and comparisons put one.

    One that cannot be read is skipped with a warning.
    """
    if run.method == ALONE:
        return None
    for path in _neighbours(_resolved(run.path)):
        try:
            other = RunReader(path)
            if other.method == ALONE and _identity(other.recipe) == _identity(run.recipe):
                return baseline_data(path, run)
        except NotARun:  # a model's directory, for example
            continue
        except StorageError as error:
            warn(f"no comparison with {path}: {error}")
    return None


def baseline_data(path: Path, run: RunReader) -> dict[str, Any]:
    """The curves and results of the baseline; it must have agents of the same names."""
    baseline = RunReader(path)
    missing = sorted(set(run.agents) - set(baseline.agents))
    if missing:
        raise ValueError(f"--baseline {path}: it has no agent {', '.join(missing)}, which {run.path} has")
    return {
        "name": path.name,
        "method": baseline.method,
        "seed": baseline.recipe["seed"],
        "outcomes": outcomes(baseline.summary),
        **columns(baseline.metrics, lambda key: bool(_BASELINE_CURVES.fullmatch(key))),
    }


def _neighbours(path: Path) -> list[Path]:
    """Runs beside this one: `demo/alone` for `demo/together`, `runs/gspo/seed_3` for `runs/hacpo/seed_3`."""
    name = glob.escape(path.name)
    configs = [*path.parent.glob("*/config.json"), *path.parent.parent.glob(f"*/{name}/config.json")]
    return sorted({config.parent for config in configs} - {path})


def _resolved(path: Path) -> Path:
    """An absolute path; unlike `Path.resolve`, without an error for links that lead in a circle."""
    return Path(os.path.realpath(path))


def _identity(recipe: Mapping[str, Any]) -> tuple[Any, ...]:
    agents = sorted((agent["name"], agent["model"]) for agent in recipe["agents"])
    return agents, recipe["task"], recipe["seed"]
