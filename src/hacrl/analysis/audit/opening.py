"""A run's recipe and checkpoints, checked before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hacrl.recipe import Recipe, saved_recipe
from hacrl.runs.checkpoint_format import Checkpoint
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader
from hacrl.training.run import read_trainer, state_directory
from hacrl.training.team import Team


@dataclass(frozen=True)
class SavedRun:
    """A run that can be audited."""

    directory: RunDirectory
    recipe: Recipe
    dtypes: Mapping[str, str]
    checkpoints: tuple[Checkpoint, ...]
    """By step; verified."""


def open_run(path: Path, checkpoint: int | None = None) -> SavedRun:
    """The run in `path` with all its checkpoints, or with the one of that step."""
    run = RunReader(path)
    recipe, steps = saved_recipe(run), list(run.checkpoints())
    if not steps:
        raise StorageError(
            f"{path} has no checkpoint to audit: the run was stopped before its first one (checkpoint.every)"
        )
    wanted = steps if checkpoint is None else [checkpoint]
    return SavedRun(run.directory, recipe, run.dtypes, tuple(run.checkpoint(step) for step in wanted))


def restore(team: Team, checkpoint: Checkpoint) -> None:
    """Load the weights and capabilities of a checkpoint into the team; a lost agent's are not there."""
    state = read_trainer(checkpoint)
    team.load_capabilities(state)
    team.retired.clear()
    team.retired.update(state["retired"])
    team.lost.clear()
    team.lost.update(state.get("lost", ()))
    for member in team.present:
        member.policy.read_state(checkpoint.directory(state_directory(member.name)))
