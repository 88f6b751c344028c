"""What a run directory holds, read for a report; a run that is still going on is read as far as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import explain_os_errors, read_jsonl


@dataclass(frozen=True)
class RunFiles:
    """A run's small files. Trajectories and lessons are read where they are needed."""

    path: Path
    recipe: Mapping[str, Any]
    versions: Mapping[str, str]
    metrics: list[dict[str, Any]]
    """One line per step; step 0 is the evaluation before."""
    summary: Mapping[str, Any] | None
    """None: the run is not finished."""
    warnings: list[dict[str, Any]]

    @property
    def agents(self) -> list[str]:
        """Names in the order of the report."""
        return sorted(agent["name"] for agent in self.recipe["agents"])


def read_files(path: Path) -> RunFiles:
    """Read a run's directory; says what is wrong when it holds none."""
    run = RunDirectory(path)
    if not run.config.is_file():
        raise ValueError(f"{path} holds no run (no {run.config.name}): give the --out of hacrl train")
    config = read_object(run.config)
    return RunFiles(
        path=path,
        recipe=config["recipe"],
        versions=config["versions"],
        metrics=read_jsonl(run.metrics) if run.metrics.exists() else [],
        summary=read_object(run.summary) if run.summary.exists() else None,
        warnings=read_jsonl(run.warnings) if run.warnings.exists() else [],
    )


def state_of(path: Path) -> str:
    """Changes whenever a run's report would; cheap enough to ask every few seconds."""
    run = RunDirectory(path)
    marks = []
    for file in (run.config, run.metrics, run.summary, run.warnings):
        if file.exists():
            status = file.stat()
            marks.append(f"{status.st_mtime_ns}-{status.st_size}")
    return ".".join(marks)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    with explain_os_errors(path, "read"):
        text = path.read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value
