from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hacrl.cli.trajectories import trajectories
from hacrl.runs.trajectories import to_json
from hacrl.sharing import write_step
from helpers_sharing import trajectory

app = typer.Typer()
app.command()(trajectories)

STEP_1 = [
    trajectory("a", "p0", 0, reward=1.0, text="right"),
    trajectory("a", "p1", 0, reward=0.0, text="wrong"),
    trajectory("b", "p0", 0, reward=None, text="unscored"),
]
STEP_2 = [trajectory("b", "p0", 0, step=2, reward=0.5, text="half\n\x1b[2J[bold]", fingerprint="x")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_step(tmp_path, 1, STEP_1)
    write_step(tmp_path, 2, STEP_2)
    return tmp_path


def texts(run: Path, *options: str) -> list[str]:
    result = CliRunner().invoke(app, [str(run), "--json", *options])
    assert result.exit_code == 0
    return [json.loads(line)["text"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["right", "wrong", "unscored", STEP_2[0].text]),
        (["--agent", "b"], ["unscored", STEP_2[0].text]),
        (["--agent", "a", "--agent", "b", "--prompt", "p1"], ["wrong"]),
        (["--correct"], ["right", STEP_2[0].text]),
        (["--wrong"], ["wrong"]),
        (["--limit", "1", "--prompt", "p0"], ["right"]),
    ],
)
def test_filters(run: Path, options: list[str], expected: list[str]) -> None:
    assert texts(run, *options) == expected


def test_json_lines_are_those_of_the_file(run: Path) -> None:
    result = CliRunner().invoke(app, [str(run), "--json", "--agent", "a"])
    assert result.stdout.splitlines() == [to_json(found) for found in STEP_1[:2]]


def test_the_table_shows_responses_without_obeying_them(run: Path) -> None:
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, [str(run), "--limit", "9"])
    assert r"half\n\x1b[2J[bold]" in result.stdout
    assert "\x1b[2J" not in result.stdout
    assert "4 of 4 trajectories" in result.stdout


def test_the_table_says_what_it_does_not_show(run: Path) -> None:
    result = CliRunner().invoke(app, [str(run), "--limit", "1"])
    assert "1 of 4 trajectories" in result.stdout


def test_user_errors_exit_with_2_and_one_line(run: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ([str(run), "--agent", "x"], "--agent x: not in this run, which has a, b"),
        ([str(run), "--prompt", "p7"], "--prompt p7: not in this run, which has p0, p1"),
        ([str(tmp_path / "nowhere")], "holds no shared trajectories"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
    with (run / "trajectories" / "step_000001.jsonl").open("a") as file:
        file.write("{}\n")
    result = CliRunner().invoke(app, [str(run)])
    assert (result.exit_code, "line 4: missing keys" in result.stderr) == (2, True)
