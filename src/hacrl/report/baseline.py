"""The same agents trained alone: the run that a report shows beside its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hacrl.report.files import RunFiles, read_files
from hacrl.report.series import columns
from hacrl.report.summary import outcomes

ALONE = "gspo"
_CURVES = re.compile(r"agent/[^/]+/(accuracy|reward|eval/.*)")


def find_baseline(run: RunFiles) -> Path | None:
    """A GSPO run of the same agents, task and seed beside this one, as demos and comparisons lay them out."""
    if run.recipe["method"]["name"] == ALONE:
        return None
    for path in _neighbours(run.path.resolve()):
        other = read_files(path)
        if other.recipe["method"]["name"] == ALONE and _identity(other.recipe) == _identity(run.recipe):
            return path
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


def _neighbours(path: Path) -> Iterator[Path]:
    """`demo/alone` for `demo/together`; `runs/gspo/seed_3` for `runs/hacpo/seed_3`."""
    configs = [*path.parent.glob("*/config.json"), *path.parent.parent.glob(f"*/{path.name}/config.json")]
    yield from sorted(config.parent for config in configs if config.parent != path)


def _identity(recipe: Mapping[str, Any]) -> tuple[Any, ...]:
    agents = sorted((agent["name"], agent["model"]) for agent in recipe["agents"])
    return agents, recipe["task"], recipe["seed"]
