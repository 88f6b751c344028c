"""`hacrl report` and `hacrl watch` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hacrl.cli.app import app


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The least a run consists of."""
    recipe = {
        "agents": [{"name": "a", "model": "m"}],
        "method": {"name": "gspo"},
        "task": {"name": "t"},
        "seed": 0,
        "steps": 5,
    }
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"recipe": recipe, "versions": {}}))
    return directory


def test_the_report_is_written_where_it_is_said(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(run)])
    assert (result.exit_code, result.output.strip()) == (0, str(run / "report.html"))
    elsewhere = tmp_path / "elsewhere.html"
    assert CliRunner().invoke(app, ["report", str(run), "--out", str(elsewhere)]).exit_code == 0
    assert elsewhere.read_bytes() == (run / "report.html").read_bytes()


@pytest.mark.parametrize("command", ["report", "watch"])
def test_mistakes_end_with_a_message_without_a_traceback(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [command, str(tmp_path / "nothing")])
    assert result.exit_code == 2
    assert "holds no run (no config.json): give the --out of hacrl train" in result.output


def test_a_baseline_must_be_a_run(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(run), "--baseline", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{tmp_path} holds no run" in result.output
