from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hacrl.cli.app import app

runner = CliRunner()


def write(path: Path, rows: list[object]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_file_is_scored(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    file = write(
        tmp_path / "responses.jsonl",
        [
            {"gold": r"\frac{1}{2}", "said": r"\boxed{0.5}", "id": 1},
            {"gold": "x+1", "said": r"\boxed{1+x}", "id": 2},
            {"gold": "3", "said": r"\boxed{4}", "id": 3},
            {"gold": "3", "said": r"\boxed{9^{9^{9^{9}}} + x}", "id": 4},
            {"gold": "9^{9^{9^{9}}} + x", "said": r"\boxed{x + 1}", "id": 5},
        ],
    )
    scored, summary = tmp_path / "scored.jsonl", tmp_path / "summary.json"
    arguments = ["--verifier", "math", "--gold", "gold", "--response", "said", "--deadline", "3"]
    result = runner.invoke(
        app, ["verify", str(file), *arguments, "--out", str(scored), "--json", str(summary)]
    )
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, 0.0, None]
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[4]["cause"] in ("timeout", "memory")
    found = json.loads(summary.read_text())
    assert found["accuracy"] == 0.5
    assert found["unscorable"] == {rows[4]["cause"]: 1}
    assert "0.5000" in result.output


def test_bad_rows_are_listed(tmp_path: Path) -> None:
    file = write(
        tmp_path / "bad.jsonl",
        [{"answer": "1", "response": "1"}, "{broken", "[1]", {"answer": "1"}, {"answer": "1", "response": 5}],
    )
    result = runner.invoke(app, ["verify", str(file), "--verifier", "exact"])
    assert result.exit_code == 2
    for expected in (
        "bad.jsonl:2: not JSON",
        "bad.jsonl:3: not an object but list",
        "bad.jsonl:4: no column 'response' (it has answer); name the column with --response",
        "bad.jsonl:5: column 'response' is not text but int",
    ):
        assert expected in result.stderr


@pytest.mark.parametrize(
    ("rows", "verifier", "message"),
    [([], "exact", "there are no rows"), ([{"answer": 1, "response": "1"}], "guess", "no verifier 'guess'")],
)
def test_other_input_errors(tmp_path: Path, rows: list[object], verifier: str, message: str) -> None:
    result = runner.invoke(app, ["verify", str(write(tmp_path / "f.jsonl", rows)), "--verifier", verifier])
    assert result.exit_code == 2
    assert message in result.stderr


def test_half_of_a_surrogate_pair_is_scored_and_written_as_it_was_read(tmp_path: Path) -> None:
    rows = [{"answer": "1", "response": "\ud800 1"}, {"answer": "é", "response": "é"}]
    file, scored = write(tmp_path / "f.jsonl", list(rows)), tmp_path / "scored.jsonl"
    result = runner.invoke(app, ["verify", str(file), "--verifier", "exact", "--out", str(scored)])
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in scored.read_text(encoding="utf-8").splitlines()]
    assert found == [rows[0] | {"reward": 0.0, "cause": None}, rows[1] | {"reward": 1.0, "cause": None}]
    assert "é" in scored.read_text(encoding="utf-8")


def test_output_that_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "f.jsonl", [{"answer": "1", "response": "1"}])
    scored = tmp_path / "scored.jsonl"
    scored.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = runner.invoke(app, ["verify", str(file), "--verifier", "exact", "--out", str(scored)])
    assert result.exit_code == 2
    assert "scored.jsonl" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.jsonl", "scored.jsonl"]
    assert scored.read_text() == "old"


@pytest.mark.parametrize("seconds", ["inf", "-inf", "nan", "-1", "0", "1e300", "86401"])
def test_a_deadline_that_is_no_time_is_refused(tmp_path: Path, seconds: str) -> None:
    file = write(tmp_path / "f.jsonl", [{"answer": "1", "response": "1"}])
    result = runner.invoke(app, ["verify", str(file), "--verifier", "exact", "--deadline", seconds])
    assert result.exit_code == 2
    assert "deadline" in result.stderr


def test_a_row_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", [{"answer": "1", "response": "1"}, "[" * 100_000 + "]" * 100_000])
    result = runner.invoke(app, ["verify", str(file), "--verifier", "exact"])
    assert result.exit_code == 2
    assert "f.jsonl:2: not JSON that can be read: nested too deeply" in result.stderr


def test_input_without_an_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in ("/dev/zero", str(tmp_path / "pipe")):
        result = runner.invoke(app, ["verify", file, "--verifier", "exact"])
        assert result.exit_code == 2
        assert f"{file} is not a regular file" in result.stderr
