"""Every file of a run, damaged in many ways: each command names the file and ends with exit code 2."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hacrl.analysis.audit.opening import open_run
from hacrl.analysis.report.server import LiveRuns
from hacrl.cli.app import app
from hacrl.runs.files import StorageError
from helpers_train import make_agent, recipe, run

DEEP = b"[" * 100_000


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step, with everything a run may write, and its recipe."""
    directory = tmp_path_factory.mktemp("damaged")
    agents = {name: make_agent(directory / "models" / name, seed) for seed, name in enumerate(("ann", "bob"))}
    settings = recipe(agents, steps=1, prompts_per_step=2, evaluation={"prompts": 2, "every": 1})
    run(settings, directory / "run", reward_funcs=None)
    (directory / "recipe.yaml").write_text(yaml.safe_dump(settings))
    return directory / "run"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / tmp_path.name))  # no other test beside it


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def content(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "pipe": fifo,
    "loop": loop,
    "dangling": dangling,
    "directory": Path.mkdir,
    "zeros": content(b"\0" * 100 + b"\n"),
    "not unicode": content(b'{"step": "\xff"}\n'),
    "deep": content(DEEP + b"\n"),
    "nested": content(b'{"step": ' + b"[" * 80 + b"]" * 80 + b"}\n"),
    "list": content(b"[]\n"),
    "number": content(b"3\n"),
    "null": content(b"null\n"),
    "wrong types": content(
        b'{"step": [], "recipe": [], "agents": 3, "prompts": 7, "ann": 1, "versions": {"x": 1}}\n'
    ),
    "constants": content(b'{"step": 1, "x": NaN, "recipe": Infinity}\n'),
    "huge": content(b'{"step": 1' + b"0" * 400 + b', "recipe": 1e999, "seconds": 1e999}\n'),
}
READ_BY_REPORT = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "trajectories/step_000001.jsonl",
    "updates/step_000001.jsonl",
    "agents/ann/tokenizer.json",
)


def damage(run: Path, file: str, how: str) -> Path:
    path = run / file
    path.unlink()
    DAMAGE[how](path)
    return path


def refused(words: list[str], *named: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.output.startswith("error: ")
    assert any(name in result.output for name in named), result.output


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("file", [*READ_BY_REPORT, "warnings.jsonl"])
def test_report_watch_and_trajectories(copy: Path, file: str, how: str) -> None:
    (copy / "warnings.jsonl").write_text('{"step": 1, "message": "m"}\n')
    damage(copy, file, how)
    refused(["report", str(copy)], file)
    assert not (copy / "report.html").exists()
    with pytest.raises(StorageError, match=Path(file).name):
        LiveRuns([copy])
    if file.startswith("trajectories"):
        refused(["trajectories", str(copy)], file)


@pytest.mark.parametrize("how", ["pipe", "deep", "wrong types", "huge"])
@pytest.mark.parametrize("file", ["config.json", "metrics.jsonl"])
def test_simulate_from(copy: Path, file: str, how: str) -> None:
    damage(copy, file, how)
    refused(["simulate", str(copy.parent / "recipe.yaml"), "--from", str(copy)], file, "recipe.yaml")


CHECKPOINT = "checkpoints/step_00000001"


@pytest.mark.parametrize(
    "how", ["pipe", "loop", "dangling", "directory", "deep", "nested", "null", "wrong types"]
)
@pytest.mark.parametrize("file", ["manifest.json", "trainer.json"])
def test_audit(copy: Path, file: str, how: str) -> None:
    damage(copy, f"{CHECKPOINT}/{file}", how)
    with pytest.raises(StorageError, match=file):
        open_run(copy)


@pytest.mark.parametrize("file", ["config.json", "metrics.jsonl", f"{CHECKPOINT}/manifest.json"])
def test_resume_on_the_command_line(copy: Path, finished: Path, file: str) -> None:
    damage(copy, file, "wrong types")
    before = (copy / "summary.json").read_bytes()
    refused(["train", str(finished.parent / "recipe.yaml"), "--out", str(copy), "--resume"], file)
    assert (copy / "summary.json").read_bytes() == before


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_names_of_agents_do_not_lead_out_of_the_run(copy: Path) -> None:
    (copy.parent / "tokenizer.json").write_text("outside")
    change_json(copy / "config.json", lambda config: config["recipe"]["agents"][0].update(name="../.."))
    refused(["report", str(copy)], "config.json")
    refused(["audit", str(copy)], "config.json")
