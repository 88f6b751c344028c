"""Reads a run directory: the one place where its files are opened, parsed and checked.

A run that is still training can be read up to its last step. Every error is a `StorageError` that names the
file, and the line where there are lines. The recipe comes as plain values; `hacrl.recipe.saved_recipe` parses
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from hacrl.runs.checkpoint_format import Checkpoint, find_checkpoints, read_checkpoint
from hacrl.runs.contents import CONFIG, EVALUATIONS, SUMMARY, check
from hacrl.runs.directory import RunDirectory, step_files
from hacrl.runs.files import StorageError, explain_os_errors
from hacrl.runs.json_files import expect, is_number, read_json, read_jsonl, step_of
from hacrl.runs.trajectories import read_step
from hacrl.types import Trajectory


class NotARun(StorageError):
    """A directory holds no run, but perhaps something else."""


class RunReader:
    """A run, read file by file on demand. The small files are read once and cached.

    Trajectories and the update log can be large: the reader lists their files, to be read a step at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = RunDirectory(path)

    def check(self) -> None:
        """Raise an error if the configuration cannot be read."""
        _ = self._config

    @cached_property
    def _config(self) -> dict[str, Any]:
        path = self.directory.config
        if not os.path.lexists(path):
            raise NotARun(f"{self.path} holds no run (no {path.name}): give the --out of hacrl train")
        config = read_json(path)
        if "recipe" not in config:
            raise NotARun(f"{path} is not the configuration of a run: it has no recipe")
        check(path, CONFIG, config, "the configuration of a run")
        return config

    @property
    def recipe(self) -> dict[str, Any]:
        """The resolved recipe as plain values."""
        recipe: dict[str, Any] = self._config["recipe"]
        return recipe

    @property
    def dtypes(self) -> dict[str, str]:
        """What each agent computes in; empty in runs of older versions."""
        return dict(self._config.get("dtypes", {}))

    @property
    def versions(self) -> dict[str, str]:
        """The packages that the run was started with."""
        versions: dict[str, str] = self._config["versions"]
        return versions

    @property
    def symptoms(self) -> list[dict[str, Any]]:
        """The bounds on the run's metrics, with the fields of `hacrl.symptoms.Symptom`."""
        return list(self._config.get("symptoms", ()))

    @property
    def agents(self) -> list[str]:
        """Names, sorted."""
        return sorted(agent["name"] for agent in self.recipe["agents"])

    @property
    def sources(self) -> list[str]:
        """The names of the agents, and `pool` if the run shared responses with others."""
        pooled = self.recipe.get("exchange", {}).get("pool") is not None
        return [*self.agents, "pool"] if pooled else self.agents

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.recipe["method"]["name"])

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One line per step; step 0 is the evaluation before training."""
        return _checked_lines(self.directory.metrics, _check_metrics)

    @cached_property
    def warnings(self) -> list[dict[str, Any]]:
        """`step` and `message` of every warning."""
        return _checked_lines(self.directory.warnings, _check_warning)

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """Each agent's results and costs; None: the run is not finished."""
        path = self.directory.summary
        if not os.path.lexists(path):
            return None
        summary = read_json(path)
        check(path, SUMMARY, summary, "the summary of a run")
        return summary

    @property
    def final_summary(self) -> dict[str, Any]:
        """The summary of a run that has to be finished."""
        if self.summary is None:
            raise StorageError(f"{self.path} is not finished: it has no {self.directory.summary.name}")
        return self.summary

    def evaluation(self, step: int) -> dict[str, Any]:
        """An evaluation during the run: agent -> task -> what was found."""
        path = self.directory.evaluation_file(step)
        found = read_json(path)
        check(path, EVALUATIONS, found, "an evaluation")
        return found

    def trajectory_files(self) -> dict[int, Path]:
        """By step, in order, for `trajectories.read_step`; none if the run kept no trajectories."""
        return step_files(self.directory.trajectories)

    def trajectories(self) -> Iterator[Trajectory]:
        """All trajectories, step by step."""
        directory = self.directory.trajectories
        if not directory.is_dir():
            raise StorageError(f"{self.path} holds no shared trajectories: there is no directory {directory}")
        for path in self.trajectory_files().values():
            yield from read_step(path)

    def update_files(self) -> dict[int, Path]:
        """By step, in order, for `updates.read_updates`; none if the run kept no update log."""
        return step_files(self.directory.updates)

    def belief_files(self) -> dict[int, Path]:
        """By step, in order, for `beliefs.read_beliefs`; none if the method has no such beliefs."""
        return step_files(self.directory.beliefs)

    def checkpoints(self) -> dict[int, Path]:
        """By step, in order; `checkpoint` reads one."""
        return find_checkpoints(self.directory.checkpoints)

    def checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint of a step, every file checked against its digest."""
        found = self.checkpoints()
        if step not in found:
            steps = ", ".join(map(str, found)) or "none"
            raise StorageError(f"{self.path} has no checkpoint of step {step}, only of {steps}")
        return read_checkpoint(found[step])

    def last_written(self) -> float:
        """When the last step was written, in seconds since 1970."""
        path = self.directory.metrics if self.metrics else self.directory.config
        with explain_os_errors(path, "read"):
            return path.stat().st_mtime

    def version_tag(self) -> str:
        """Changes whenever one of the small files does; cheap enough to poll every few seconds."""
        run = self.directory
        marks = []
        for file in (run.config, run.metrics, run.summary, run.warnings):
            with suppress(OSError):  # not written yet
                status = file.stat()
                marks.append(f"{status.st_mtime_ns}-{status.st_size}")
        return ".".join(marks)


def _checked_lines(path: Path, check: Callable[[Mapping[str, Any]], None]) -> list[dict[str, Any]]:
    """The lines of a file that grows, none before its first; `check` raises `ValueError` for a bad one."""
    lines = read_jsonl(path) if os.path.lexists(path) else []
    for number, line in enumerate(lines, start=1):
        try:
            check(line)
        except ValueError as error:
            raise StorageError(f"{path}, line {number}: {error}") from error
    return lines


def _check_metrics(line: Mapping[str, Any]) -> None:
    step_of(line)
    for key, value in line.items():
        expect(line, key, is_number(value), "a number")


def _check_warning(line: Mapping[str, Any]) -> None:
    step_of(line)
    expect(line, "message", isinstance(line.get("message"), str), "a text")
