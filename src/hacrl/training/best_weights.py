"""`evaluation.keep: best`: every agent's best evaluated weights, in the run's directory."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from hacrl.runs.directory import step_name
from hacrl.runs.files import replaced_directory
from hacrl.training.evaluation import Evaluation, Evaluations
from hacrl.training.team import Member, Team


@dataclass(frozen=True)
class Best:
    """One agent's best evaluation so far."""

    step: int
    score: float
    """Mean greedy accuracy over the evaluation's tasks."""
    evaluations: dict[str, Evaluation]


class BestWeights:
    """Saves an agent's weights whenever it is evaluated better than ever before."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.best: dict[str, Best] = {}
        self._referenced: deque[dict[str, int]] = deque(maxlen=2)
        """What the latest two checkpoints name: a run may be resumed from either."""

    def offer(self, team: Team, step: int, evaluations: Evaluations) -> None:
        """Save the agents that are better than ever; equally good ones stay as they were earlier."""
        scores = {
            name: fmean(evaluation.greedy.mean for evaluation in tasks.values())
            for name, tasks in evaluations.items()
        }
        better = [
            member
            for member in team.present
            if member.name in scores
            and (member.name not in self.best or scores[member.name] > self.best[member.name].score)
        ]
        saved = team.each(lambda member: self._save(member, step), better)
        for name in saved:
            self.best[name] = Best(step, scores[name], evaluations[name])
            self._remove_others(name)

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values, for a checkpoint."""
        self._referenced.append({name: best.step for name, best in self.best.items()})
        return {
            name: {
                "step": best.step,
                "score": best.score,
                "evaluations": {task: each.as_dict() for task, each in best.evaluations.items()},
            }
            for name, best in self.best.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name, best in state.items():
            evaluations = {task: Evaluation.from_dict(each) for task, each in best["evaluations"].items()}
            self.best[name] = Best(best["step"], best["score"], evaluations)
        self._referenced.append({name: best.step for name, best in self.best.items()})

    def export(self, agent: str, directory: Path) -> None:
        """The agent's best weights in another directory: links to the same files where possible."""
        shutil.copytree(self._folder(agent, self.best[agent].step), directory, copy_function=_link_or_copy)

    def _folder(self, agent: str, step: int) -> Path:
        return self._directory / agent / step_name(step)

    def _save(self, member: Member, step: int) -> None:
        with replaced_directory(self._folder(member.name, step)) as aside:
            member.policy.save(aside)

    def _remove_others(self, agent: str) -> None:
        steps = {self.best[agent].step, *(named[agent] for named in self._referenced if agent in named)}
        wanted = {step_name(step) for step in steps}
        for folder in (self._directory / agent).glob("step_*"):
            if folder.name not in wanted:
                shutil.rmtree(folder)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # not on every file system
        shutil.copy2(source, target)
