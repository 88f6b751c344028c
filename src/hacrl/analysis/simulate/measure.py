"""Measure steps of tiny random agents on this machine in CPU seconds, to check the formulas."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from hacrl.agents.agent import Agent
from hacrl.analysis.doctor.models import ModelFacts, look_at
from hacrl.analysis.simulate.synthetic import Size, make_model, make_prompts, rewards, save_agent
from hacrl.recipe import Recipe, parse_recipe
from hacrl.tasks import Task
from hacrl.training.step import train_step
from hacrl.training.team import Team
from hacrl.training.team_setup import build_team

PHASES = ("sample", "update")


@dataclass(frozen=True, slots=True)
class Case:
    """A step to measure: agents of these sizes, responses of full length."""

    sizes: tuple[Size, ...]
    prompts: int
    samples: int
    max_new: int

    def __str__(self) -> str:
        shapes = " + ".join(f"{size.layers}x{size.hidden}" for size in self.sizes)
        return f"{shapes}, vocabulary {self.sizes[0].vocab}, {self.prompts}x{self.samples}x{self.max_new}"


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The step of a case, in CPU seconds: medians over the rounds."""

    case: Case
    recipe: Recipe
    facts: dict[str, ModelFacts]
    prompt_tokens: float
    phases: dict[str, dict[str, float]]
    """By agent, then by phase."""
    step: float

    @property
    def rest(self) -> float:
        """The loop: verification, exchange, training rows."""
        return self.step - sum(sum(seconds.values()) for seconds in self.phases.values())


def measure(cases: Sequence[Case], rounds: int, progress: Callable[[str], None]) -> list[MeasuredStep]:
    """Every case once per round, so that a slow minute of the machine affects all of them."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as closing:
        teams = []
        for number, case in enumerate(cases):
            teams.append(_Team(case, Path(directory) / str(number)))
            closing.callback(teams[-1].team.close)
        for step in range(1, rounds + 2):
            progress(f"round {step - 1} of {rounds}, {len(cases)} workloads")
            for team in teams:
                team.step(step, warming_up=step == 1)
        return [team.measured() for team in teams]


class _Team:
    """The agents of one case, and the times of their steps."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case, prompts = case, make_prompts(case.sizes[0], case.prompts)
        self._prompt_tokens = statistics.mean(len(str(prompt.text).split()) for prompt in prompts)
        models = [
            save_agent(directory / f"agent-{seed}", make_model(size, prompts, seed=seed), size)
            for seed, size in enumerate(case.sizes)
        ]
        self.recipe = _recipe(case, models)
        self._facts = {path.name: facts for path in models if (facts := look_at(str(path), None))}
        task = Task("words", prompts, prompts[:1], "exact")
        self.team: Team = build_team(self.recipe, task=task, reward_funcs=[rewards])
        self._watches = {member.name: _Stopwatch(member.policy) for member in self.team.members}
        self.team.members = tuple(
            replace(member, policy=cast(Agent, self._watches[member.name])) for member in self.team.members
        )
        self._steps: list[float] = []

    def step(self, step: int, warming_up: bool) -> None:
        begun = time.process_time()
        train_step(self.team, step)
        self._steps.append(time.process_time() - begun)
        if warming_up:
            self._steps.clear()
        for watch in self._watches.values():
            watch.end_step(warming_up)

    def measured(self) -> MeasuredStep:
        phases = {name: watch.medians() for name, watch in self._watches.items()}
        step = statistics.median(self._steps)
        return MeasuredStep(self._case, self.recipe, self._facts, self._prompt_tokens, phases, step)


class _Stopwatch:
    """An agent whose sampling and updates are timed."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._now = dict.fromkeys(PHASES, 0.0)
        self._steps: list[dict[str, float]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._agent, name)
        return partial(self._timed, name, found) if name in PHASES else found

    def _timed(self, phase: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        begun = time.process_time()
        result = call(*arguments, **options)
        self._now[phase] += time.process_time() - begun
        return result

    def end_step(self, forget: bool) -> None:
        if not forget:
            self._steps.append(self._now)
        self._now = dict.fromkeys(PHASES, 0.0)

    def medians(self) -> dict[str, float]:
        return {phase: statistics.median(step[phase] for step in self._steps) for phase in PHASES}


def _recipe(case: Case, models: Sequence[Path]) -> Recipe:
    return parse_recipe(
        {
            "agents": [
                {"name": path.name, "model": str(path), "device": "cpu", "dtype": "float32"}
                for path in models
            ],
            "task": "words",
            "method": {"name": "hacpo", "delta": 0.8},
            "prompts_per_step": case.prompts,
            "samples_per_prompt": case.samples,
            "sampling": {"max_new_tokens": case.max_new},
            "optimiser": {"learning_rate": 1e-5, "kl": 0.0},
        }
    )
