"""The same agents trained alone: the run that a report shows beside its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hacrl.analysis.report.files import RunFiles, read_files, read_object
from hacrl.analysis.report.series import columns
from hacrl.analysis.report.summary import outcomes
from hacrl.runs.files import StorageError

ALONE = "gspo"
_CURVES = re.compile(r"agent/[^/]+/(accuracy|reward|eval/.*)")


def find_baseline(run: RunFiles) -> Path | None:
    """A GSPO run of the same agents, task and seed beside this one, as demos and comparisons lay them out."""
    if run.recipe["method"]["name"] == ALONE:
        return None
    for config in _neighbours(run.path.resolve()):
        with suppress(ValueError, LookupError, TypeError, StorageError):  # not a run's, or being written
            other = read_object(config)["recipe"]
            if other["method"]["name"] == ALONE and _identity(other) == _identity(run.recipe):
                return config.parent
    return None


def baseline_data(path: Path, run: RunFiles) -> dict[str, Any]:
    """What the report needs of the baseline; it must have trained agents of the same names."""
    baseline = read_files(path)
    missing = sorted(set(run.agents) - set(baseline.agents))
    if missing:
        raise ValueError(f"--baseline {path}: it has no agent {', '.join(missing)}, which {run.path} has")
    return {
        "name": path.name,
        "method": baseline.recipe["method"]["name"],
        "seed": baseline.recipe["seed"],
        "outcomes": outcomes(baseline.summary),
        **columns(baseline.metrics, lambda key: bool(_CURVES.fullmatch(key))),
    }


def _neighbours(path: Path) -> list[Path]:
    """Configurations of `demo/alone` for `demo/together`, of `runs/gspo/seed_3` for `runs/hacpo/seed_3`."""
    configs = [*path.parent.glob("*/config.json"), *path.parent.parent.glob(f"*/{path.name}/config.json")]
    return sorted({config for config in configs if config.parent != path})


def _identity(recipe: Mapping[str, Any]) -> tuple[Any, ...]:
    agents = sorted((agent["name"], agent["model"]) for agent in recipe["agents"])
    return agents, recipe["task"], recipe["seed"]
