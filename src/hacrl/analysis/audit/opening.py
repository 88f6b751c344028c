"""A run as it was left: its recipe and its checkpoints, checked before any model is loaded."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from hacrl.recipe import Recipe, parse_recipe
from hacrl.runs.checkpoint_format import Checkpoint, read_folder
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError, explain_os_errors
from hacrl.training.run import state_folder
from hacrl.training.team import Team


@dataclass(frozen=True)
class SavedRun:
    """What can be audited."""

    directory: RunDirectory
    recipe: Recipe
    checkpoints: tuple[Checkpoint, ...]
    """In order of their steps; intact."""


def open_run(path: Path, checkpoint: int | None = None) -> SavedRun:
    """The run in `path` with all its checkpoints, or with the one of that step."""
    directory = RunDirectory(path)
    with explain_os_errors(directory.config, "read"):
        if not directory.config.is_file():
            raise StorageError(
                f"{path} holds no run (no {directory.config.name}): give the directory that hacrl train "
                "was given as --out"
            )
        config = directory.config.read_text(encoding="utf-8")
    try:
        values = json.loads(config)["recipe"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{directory.config} is not the configuration of a run: {error!r}") from error
    recipe = parse_recipe(values, where=str(directory.config))
    folders = _folders(directory)
    if checkpoint is not None:
        if checkpoint not in folders:
            steps = ", ".join(map(str, sorted(folders)))
            raise StorageError(f"{path} has no checkpoint of step {checkpoint}, only of {steps}")
        folders = {checkpoint: folders[checkpoint]}
    return SavedRun(directory, recipe, tuple(read_folder(folders[step]) for step in sorted(folders)))


def restore(team: Team, checkpoint: Checkpoint) -> None:
    """Give the team the weights and capabilities it had then."""
    state = checkpoint.json("trainer.json")
    team.capability.load_state_dict(state["capability"])
    team.retired.clear()
    team.retired.update(state["retired"])
    for member in team.members:
        member.policy.read_state(checkpoint.folder(state_folder(member.name)))


def _folders(directory: RunDirectory) -> dict[int, Path]:
    with explain_os_errors(directory.checkpoints, "read"):
        found = sorted(directory.checkpoints.glob("step_*")) if directory.checkpoints.exists() else []
    folders = {int(path.name[5:]): path for path in found if re.fullmatch(r"step_\d+", path.name)}
    if not folders:
        raise StorageError(
            f"{directory.path} has no checkpoint to audit: the run was stopped before its first one "
            "(checkpoint.every)"
        )
    return folders
