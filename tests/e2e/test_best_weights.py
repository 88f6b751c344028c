"""`evaluation.keep: best`: what is exported is the best that was evaluated, also after a resume."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import hacrl.training.run as run_module
from hacrl.recipe import RecipeError, parse_recipe
from hacrl.training.evaluation import Evaluation, evaluate
from helpers_train import Silent, make_agent, recipe, run

SCORES = {"ada": [0.2, 0.5, 0.3, 0.5, 0.1], "bob": [0.6, 0.6, 0.2, 0.6, 0.6]}
"""Before training and after each of four steps; the best are steps 1 and 0."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A recipe whose evaluations have the results above."""
    train_step, now = run_module.train_step, [0]

    def counted(team: Any, step: int) -> Any:
        now[0] = step
        return train_step(team, step)

    def scripted(agent: Any, *arguments: Any) -> Evaluation:
        result = evaluate(agent, *arguments).as_dict()
        result["greedy"]["mean"] = SCORES[agent.name][now[0]]
        return Evaluation.from_dict(result)

    monkeypatch.setattr(run_module, "train_step", counted)
    monkeypatch.setattr(run_module, "evaluate", scripted)
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(SCORES)}
    return recipe(agents, evaluation={"prompts": 3, "every": 1, "keep": "best"})


class StopAfterTwo(Silent):
    def step(self, step: int, metrics: Any) -> None:
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def equal(one: Path, other: Path) -> bool:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_best_weights_are_exported_and_the_summary_names_their_step(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    run(settings, tmp_path / "run")
    run({**settings, "steps": 1, "evaluation": {"prompts": 3, "before": False}}, tmp_path / "one")
    agents = json.loads((tmp_path / "run" / "summary.json").read_text())["agents"]
    assert {name: agents[name]["exported_step"] for name in agents} == {"ada": 1, "bob": 0}
    assert agents["ada"]["after"]["digits"]["greedy"]["mean"] == 0.5
    assert equal(tmp_path / "run" / "agents" / "ada", tmp_path / "one" / "agents" / "ada")
    assert equal(tmp_path / "run" / "agents" / "bob", tmp_path / "bob")
    card = (tmp_path / "run" / "agents" / "ada" / "README.md").read_text()
    assert "- weights of step 1, the best of all evaluated ones" in card


def test_a_resumed_run_exports_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    run(settings, tmp_path / "whole")
    with pytest.raises(run_module.Stopped):
        run(settings, tmp_path / "stopped", display=StopAfterTwo())
    for _ in range(2):  # the second time it is finished already
        run(settings, tmp_path / "stopped", resume=True)
        for name in SCORES:
            assert equal(tmp_path / "stopped" / "agents" / name, tmp_path / "whole" / "agents" / name)


def test_the_best_needs_evaluations(tmp_path: Path) -> None:
    values = recipe({"ada": tmp_path}, evaluation={"keep": "best"})
    with pytest.raises(RecipeError, match=r"evaluation\.every: expected more than 0 with evaluation\.keep"):
        parse_recipe(values)
