"""docs/own.md: the code it shows is that of examples/, and its commands do what it says."""

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from hacrl.cli.app import app
from hacrl.runs.reader import RunReader
from hacrl.tasks.toy_models import models as toy_models
from hacrl.tasks.toy_models.models import BaseAgent, Body
from hacrl.tasks.toy_models.pretraining import EVENLY, Stage

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own.md").read_text()
SHOWN = re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)).splitlines()

HASTY = (Stage(3, 3e-3, EVENLY),)
TINY = {
    "model-llama": BaseAgent(Body("llama", width=16, layers=1, heads=2, cut="characters"), HASTY),
    "model-qwen": BaseAgent(Body("qwen3", width=16, layers=1, heads=2, cut="digit-pairs"), HASTY),
}
"""In the place of the nursery's agents of these names: hardly trained, and made at once."""


def test_the_page_shows_every_example_as_it_is():
    for name, text in SHOWN:
        file = (ROOT / name).read_text()
        assert file.startswith(text) if name.endswith(".jsonl") else file == text, name
    examples = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()}
    unshown = examples - {Path(name).name for name, _ in SHOWN}
    assert unshown == {".gitignore", "make_models.py", "minimal_loop.py", "trl_pool.py"}
    assert "python make_models.py" in COMMANDS


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A copy of examples/ in which every command of the page was run, two steps each."""
    workplace = tmp_path_factory.mktemp("clone")
    shutil.copytree(
        ROOT / "examples", workplace / "examples", ignore=shutil.ignore_patterns("models", "runs")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace)
        patch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))
        patch.setattr(toy_models, "AGENTS", TINY)
        patch.syspath_prepend(workplace / "examples")
        for command in COMMANDS:
            program, *words = shlex.split(command.replace("--steps 20", "--steps 2"))
            RUN[program](words)
        yield workplace / "examples"
        for name in ("own_reward", "own_method"):
            sys.modules.pop(name, None)


def hacrl(words):
    if words[0] == "compare":
        words = [words[0], words[1], "steps=2", "evaluation.prompts=4", *words[2:]]
    result = CliRunner().invoke(app, [*words, "steps=2"] if words[0] == "train" else words)
    assert result.exit_code == 0, result.output


def python(words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        runpy.run_path(words[0], run_name="__main__")


RUN = {"cd": lambda words: os.chdir(*words), "hacrl": hacrl, "python": python}


@pytest.mark.parametrize(
    "run", ["own-models/agents", "own-data/agents", "own-reward/agents", "own-method/agents", "minimal"]
)
def test_plain_transformers_loads_the_agents_of_every_run(workplace, run):
    directories = sorted((workplace / "runs" / run).iterdir())
    models = [AutoModelForCausalLM.from_pretrained(directory) for directory in directories]
    assert [model.config.model_type for model in models] == ["llama", "qwen3"]
    tokens = [AutoTokenizer.from_pretrained(directory).tokenize("3126") for directory in directories]
    assert tokens == [["3", "1", "2", "6"], ["31", "26"]]


def questions(workplace):
    """By the ids that rows without one get."""
    lines = (workplace / "questions.jsonl").read_text().splitlines()
    return {f"train-{number}": json.loads(line) for number, line in enumerate(lines, start=1)}


def test_own_data_are_asked_and_verified(workplace):
    asked, trajectories = (
        questions(workplace),
        list(RunReader(workplace / "runs" / "own-data").trajectories()),
    )
    assert {t.source for t in trajectories} == {"ada", "bob"}
    assert len({t.prompt_id for t in trajectories}) == 2 * 16
    for t in trajectories:
        assert t.reward == (t.text.strip() == asked[t.prompt_id]["answer"])


@pytest.mark.parametrize("run", ["own-reward", "own-trainer"])
def test_the_reward_is_that_of_the_own_function(workplace, run):
    closeness = runpy.run_path(str(workplace / "own_reward.py"))["closeness"]
    asked, trajectories = questions(workplace), list(RunReader(workplace / "runs" / run).trajectories())
    answers = [asked[t.prompt_id]["answer"] for t in trajectories]
    rewards = closeness(prompts=[], completions=[t.text for t in trajectories], answer=answers)
    assert [t.reward for t in trajectories] == rewards
    assert any(0 < reward < 1 for reward in rewards)
    for name in ("ada", "bob"):  # and they learn from it
        start = (workplace / "models" / name / "model.safetensors").read_bytes()
        assert (workplace / "runs" / run / "agents" / name / "model.safetensors").read_bytes() != start


def test_closeness_by_hand(workplace):
    closeness = runpy.run_path(str(workplace / "own_reward.py"))["closeness"]
    given, answers = ["123", "12", "1234", "321", ""], ["123"] * 5
    assert closeness([], given, answers) == [1.0, 2 / 3, 3 / 4, 1 / 3, 0.0]


def test_the_own_method_is_checked_measured_and_compared_like_ours(workplace):
    assert len((workplace / "own_method.py").read_text().splitlines()) < 60
    run = workplace / "runs" / "own-method"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all("agent/ada/focal/imitated" in line for line in lines[1:])
    assert "agent/ada/gate/accepted" not in lines[-1]
    assert "focal/likelihood" in {
        found["measure"] for found in json.loads((run / "config.json").read_text())["symptoms"]
    }
    assert (run / "report.html").is_file()
    outcomes = json.loads((workplace / "runs" / "own-comparison" / "comparison.json").read_text())
    assert "focal" in json.dumps(outcomes)
    wrong = CliRunner().invoke(app, ["doctor", str(workplace / "own_method.yaml"), "method.gama=1"])
    assert wrong.exit_code == 2
    assert "method.gama: unknown key; did you mean 'gamma'?" in wrong.output
