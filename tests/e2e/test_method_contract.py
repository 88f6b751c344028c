"""What every registered method has to fulfil in whole runs: exact resume, no labels read, the same on Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint
from hacrl.recipe import parse_recipe
from hacrl.recipe.method import registered_methods
from hacrl.runtime import Runtime
from hacrl.training import team_setup
from hacrl.training.step import train_step
from helpers_train import make_agent, outcome, recipe, run, short_answers

pytestmark = pytest.mark.slow
METHODS = [*registered_methods(), "own_method:Focal"]
"""The last one is the user's own of docs/own.md."""


@pytest.fixture(autouse=True)
def _own_method(monkeypatch) -> Iterator[None]:
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.chdir(examples)  # where the agents' processes look for modules, too
    monkeypatch.syspath_prepend(examples)
    yield
    sys.modules.pop("own_method", None)


@pytest.fixture(scope="module")
def agents(tmp_path_factory) -> dict[str, Path]:
    """Of different sizes, with the one tokenizer that some methods need."""
    folder = tmp_path_factory.mktemp("agents")
    return {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3, "qwen3", width=16)}


def settings(agents: dict[str, Path], method: str, **changes: Any) -> dict[str, Any]:
    evaluation = {"prompts": 2, "before": False}
    return recipe(agents, method=method, evaluation=evaluation) | {"steps": 3} | changes


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_is_the_same_as_an_undisturbed_one(agents, method, tmp_path):
    run(settings(agents, method), tmp_path / "whole")
    run(settings(agents, method, steps=2), tmp_path / "resumed")
    run(settings(agents, method), tmp_path / "resumed", resume=True)
    whole, resumed = outcome(tmp_path / "whole"), outcome(tmp_path / "resumed")
    assert resumed == whole
    starts = {name: (path / "model.safetensors").read_bytes() for name, path in agents.items()}
    assert all(whole["weights"][name] != start for name, start in starts.items()), "somebody learned nothing"


@pytest.mark.parametrize("method", METHODS)
def test_no_method_reads_the_kind_of_a_prompt(agents, method):
    """Real prompts have no such labels: training on hidden ones is the same bit by bit."""
    chosen = parse_recipe(settings(agents, method, steps=2))
    shown = team_setup.load_task(chosen.task)
    hidden = replace(shown, train=[replace(prompt, kind="") for prompt in shown.train])
    assert len({prompt.kind for prompt in shown.train}) > 1
    trained = []
    for task in (shown, hidden):
        made = team_setup.build_team(chosen, task=task, reward_funcs=[short_answers])
        try:
            batches = [train_step(made, step).batches for step in (1, 2)]
            trained.append((batches, [member.policy.fingerprint() for member in made.members]))
        finally:
            made.close()
    assert trained[0] == trained[1]


class ReusedAgents:
    """A runtime whose agents are loaded once and set back to their first state for every run."""

    def __init__(self, runtime: Runtime, states: Path) -> None:
        self.runtime, self._states = runtime, states
        self._agents: list[Agent] = []

    def load(self, blueprints: Sequence[Blueprint]) -> list[Agent]:
        if not self._agents:
            self._agents = self.runtime.load(blueprints)
            for agent in self._agents:
                agent.write_state(self._states / agent.name)
        for agent in self._agents:
            agent.read_state(self._states / agent.name)
        return self._agents

    def close(self) -> None:
        """The next run needs them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)


@pytest.fixture
def reuse_agents(agents, tmp_path, monkeypatch) -> Iterator[None]:
    """Starting two processes for every method would take minutes."""
    reused: list[ReusedAgents] = []
    make_runtime = team_setup.make_runtime

    def make(made_for: Any) -> Any:
        if made_for.runtime.name == "local":
            return make_runtime(made_for)
        if not reused:
            reused.append(ReusedAgents(make_runtime(made_for), tmp_path / "states"))
        return reused[0]

    monkeypatch.setattr(team_setup, "make_runtime", make)
    yield
    for each in reused:
        each.runtime.close()


@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'hacrl[ray]'")
@pytest.mark.parametrize("critic", [False, True])
@pytest.mark.usefixtures("reuse_agents")
def test_ray_gives_what_one_process_gives(agents, critic, tmp_path):
    methods = {name: parse_recipe(settings(agents, name)).method for name in METHODS}
    chosen = [name for name, method in methods.items() if bool(method.critic) == critic]
    assert chosen
    for number, name in enumerate(chosen):
        for where in ("local", "ray"):
            run(settings(agents, name, steps=2, runtime=where), tmp_path / where / str(number))
        ours, theirs = (outcome(tmp_path / where / str(number)) for where in ("local", "ray"))
        assert theirs["weights"] == ours["weights"], name
        assert theirs["trajectories"] == ours["trajectories"], name
        assert theirs["metrics"] == ours["metrics"], name
