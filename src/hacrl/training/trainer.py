"""Training from Python: `hacrl.train(...)` and `Trainer`, with TRL's names where they mean the same."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hacrl.agents.endpoint import EndpointPeer
from hacrl.recipe import Recipe, load_recipe, parse_recipe
from hacrl.rewards import RewardFunction
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import write_json
from hacrl.runs.reader import RunReader
from hacrl.symptoms import with_own
from hacrl.tasks import Task, from_rows
from hacrl.training.display import Display, make_display
from hacrl.training.export import export_agents
from hacrl.training.pool_link import PoolLink
from hacrl.training.run import Run
from hacrl.training.team import Deliver, Member, Team
from hacrl.training.team_setup import build_team


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    task: Task | None = None,
    reward_funcs: Sequence[RewardFunction] | None = None,
    display: Display | None = None,
    deliver: Deliver | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a recipe in the directory `out`, or continue the run there; returns its summary.

    `recipe` is a YAML file, a mapping of the same form, or a `Recipe`. `task` and `reward_funcs` replace
    what the recipe says. `deliver` may change the trajectories that each learner receives in a step.
    `dtypes` are for agents with `dtype: auto`; without it they are chosen when the run begins.
    """
    if isinstance(recipe, str | Path):
        recipe = load_recipe(recipe, overrides)
    elif not isinstance(recipe, Recipe):
        recipe = parse_recipe(recipe, overrides)
    open_directory = RunDirectory.resume if resume else RunDirectory.create
    with open_directory(Path(out)) as directory:
        if resume:
            reader = RunReader(directory.path)
            reader.check()  # before the models are loaded
            dtypes = reader.dtypes
        pool = PoolLink.open(recipe, directory)  # before the models are loaded
        team = build_team(
            recipe,
            task=task,
            reward_funcs=reward_funcs,
            deliver=deliver,
            dtypes=dtypes,
            replies=directory.replies,
        )
        team.pool = pool
        try:
            run = Run(team, directory, display or make_display())
        except BaseException:
            team.close()
            raise
        try:
            if resume:
                run.restore()
            else:
                write_json(directory.config, describe(team))
            run.train()
            summary = summarise(run)
            export_agents(team, directory.agents, summary, run.best)
            write_json(directory.summary, summary)
        finally:
            run.close()
    return summary


class Trainer:
    """`train` as an object, with TRL's names.

    `agents` maps names to models (a directory, a hub id or `toy:NAME`) or to a recipe's agent settings;
    `args` holds the recipe's other keys. The data sets are rows in TRL's format; without them the task in
    `args` is used. Without `reward_funcs` the task's verifier scores, `exact` for rows.
    """

    def __init__(
        self,
        agents: Mapping[str, str | Mapping[str, Any]],
        reward_funcs: RewardFunction | Sequence[RewardFunction] | None = None,
        train_dataset: Iterable[Mapping[str, Any]] | None = None,
        eval_dataset: Iterable[Mapping[str, Any]] | None = None,
        args: Mapping[str, Any] | None = None,
        output_dir: str | Path = "runs/latest",
    ) -> None:
        values = dict(args or {})
        values["agents"] = [
            {"name": name, **({"model": agent} if isinstance(agent, str) else agent)}
            for name, agent in agents.items()
        ]
        self._task: Task | None = None
        self._reward_funcs = [reward_funcs] if callable(reward_funcs) else reward_funcs
        if train_dataset is not None:
            # Reward functions read columns of their own: `answer` is only required without them.
            answers = not self._reward_funcs
            self._task = from_rows(train_dataset, eval_dataset, name="train_dataset", answers=answers)
            values.setdefault("task", self._task.name)
        self.recipe = parse_recipe(values, where="Trainer")
        self.output_dir = Path(output_dir)

    def train(self, resume_from_checkpoint: bool = False) -> dict[str, Any]:
        """Train in `output_dir`, or continue the run there; returns the summary."""
        return train(
            self.recipe,
            self.output_dir,
            resume=resume_from_checkpoint,
            task=self._task,
            reward_funcs=self._reward_funcs,
        )


def describe(team: Team) -> dict[str, Any]:
    """The contents of `config.json`: enough for a report without loading the method or a model."""
    symptoms = with_own(team.method.symptoms).values()
    return {
        "recipe": team.recipe.resolved(),
        "dtypes": dict(team.dtypes),
        "versions": versions(),
        "symptoms": [asdict(symptom) for symptom in symptoms],
    }


def summarise(run: Run) -> dict[str, Any]:
    """Each agent's results and costs; peers that only respond have a place of their own."""
    progress = run.progress
    best = run.best.best if run.best else {}
    after = progress.after | {name: kept.evaluations for name, kept in best.items()}
    agents = {
        member.name: {
            **_entry(run, member),
            "after": {task: value.as_dict() for task, value in after.get(member.name, {}).items()},
            "exported_step": best[member.name].step if member.name in best else progress.step,
            **_totals(run, member, "trained_tokens", "updates", "skipped_updates"),
            "drift": progress.drift.get(member.name, {}),
        }
        for member in run.team.members
        if member.trains
    }
    return {
        "method": run.team.method.label,
        "task": run.team.task.name,
        "steps": progress.step,
        "seconds": progress.seconds,
        "cpu_seconds": progress.cpu_seconds,
        "agents": agents,
        "peers": {member.name: _peer(run, member) for member in run.team.members if not member.trains},
    }


def _entry(run: Run, member: Member) -> dict[str, Any]:
    """What agents and peers have in common."""
    before = run.progress.before.get(member.name, {})
    return {
        "model": run.team.recipe.agent(member.name).model,
        "before": {task: value.as_dict() for task, value in before.items()},
        **_totals(run, member, "rollouts", "generated_tokens"),
        "retired": run.team.retired.get(member.name),
    }


def _peer(run: Run, member: Member) -> dict[str, Any]:
    """An endpoint also has a bill."""
    policy = member.policy
    return _entry(run, member) | (dict(policy.usage) if isinstance(policy, EndpointPeer) else {})


def _totals(run: Run, member: Member, *keys: str) -> dict[str, int]:
    totals = run.progress.totals.get(member.name, Counter())
    return {key: totals[key] for key in keys}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that affect results."""
    packages = ("hacrl", "torch", "transformers", "tokenizers", "safetensors")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
