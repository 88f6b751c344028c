"""`hacrl init` writes recipes that are valid, asks on a terminal, and never replaces a file unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hacrl.cli.app import app
from hacrl.recipe import Recipe, load_recipe

REAL = ("--model", "Qwen/Qwen3-1.7B", "--model", "big=./My Models/x: y")


def init(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["init", str(file), *words])


def written(file: Path, *words: str) -> Recipe:
    result = init(file, *words)
    assert result.exit_code == 0, result.output
    return load_recipe(file)


def test_without_options_the_toys_learn_their_own_task(tmp_path: Path) -> None:
    recipe = written(tmp_path / "recipe.yaml")
    assert [agent.model for agent in recipe.agents] == ["toy:complementary-a", "toy:complementary-b"]
    assert (recipe.task.name, recipe.method.name, recipe.runtime.name) == ("digits", "commons", "local")
    assert recipe.optimiser.learning_rate is None, "that of their size"


def test_options_are_what_the_recipe_says(tmp_path: Path) -> None:
    options = ("--task", "data/my problems.jsonl", "--method", "hacpo", "--hardware", "ray")
    recipe = written(tmp_path / "recipe.yaml", *REAL, *options)
    models = {agent.name: agent.model for agent in recipe.agents}
    assert models == {"qwen3-1.7b": "Qwen/Qwen3-1.7B", "big": "./My Models/x: y"}
    assert (recipe.task.name, recipe.method.name, recipe.runtime.name) == (options[1], "hacpo", "ray")
    assert {agent.resources.gpus for agent in recipe.agents} == {1.0}


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
def test_without_a_task_real_models_get_word_problems(hardware: str, tmp_path: Path) -> None:
    recipe = written(tmp_path / "recipe.yaml", *REAL, "--hardware", hardware)
    assert (recipe.task.name, recipe.runtime.name) == ("gsm8k", "local")
    assert recipe.optimiser.learning_rate is None, "that of their size"
    assert recipe.updates.gradient_checkpointing == (hardware == "gpu")


@pytest.mark.parametrize("hardware", ["cpu", "gpu", "ray"])
@pytest.mark.parametrize(
    "models",
    [
        (),
        ("--model", "toy:state-a", "--model", "toy:state-b", "--method", "hacpo"),
        ("--model", "some-owner/some-model", "--model", "other=some-owner/another"),
    ],
    ids=["default", "toys", "hub"],
)
def test_the_doctor_accepts_what_options_have_written(
    models: tuple[str, ...], hardware: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, tasks and GPUs that are not here are noted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "recipe.yaml"
    written(file, *models, "--hardware", hardware)
    result = CliRunner().invoke(app, ["doctor", str(file)])
    assert result.exit_code == 0, result.output
    assert "This recipe can run" in result.stdout


def test_the_same_model_twice_is_two_agents(tmp_path: Path) -> None:
    recipe = written(tmp_path / "recipe.yaml", *("--model", "toy:state-a") * 3)
    assert [agent.name for agent in recipe.agents] == ["state-a", "state-a-2", "state-a-3"]


def test_on_a_terminal_open_questions_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hacrl.cli.init._is_interactive", lambda: True)
    file = tmp_path / "recipe.yaml"
    words = ["init", str(file), "--hardware", "gpu"]
    result = CliRunner().invoke(app, words, input="org/one org/two\n\ngspo\n")
    assert result.exit_code == 0, result.output
    assert "Task [gsm8k]" in result.output
    assert "Hardware" not in result.output
    recipe = load_recipe(file)
    assert ([agent.name for agent in recipe.agents], recipe.method.name) == (["one", "two"], "gspo")


def test_a_file_is_replaced_only_if_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("mine")
    result = init(file)
    assert (result.exit_code, file.read_text()) == (2, "mine")
    assert "recipe.yaml exists" in result.output
    assert "--force" in result.output
    assert written(file, "--force").steps == 30


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--hardware", "tpu"), "hardware 'tpu': choose one of cpu, gpu, ray"),
        (("--method", "hacpoo"), "method: "),
        (("--model", "a b=toy:state-a"), "agents.0.name: expected 1 to 64 letters"),
    ],
)
def test_a_wrong_choice_is_named_and_nothing_is_written(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = init(tmp_path / "recipe.yaml", *words)
    assert result.exit_code == 2
    assert message in result.output
    assert not any(tmp_path.iterdir())
