from __future__ import annotations

import json
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
        ],
    )
    scored, summary = tmp_path / "scored.jsonl", tmp_path / "summary.json"
    arguments = ["--verifier", "math", "--gold", "gold", "--response", "said", "--deadline", "3"]
    result = runner.invoke(
        app, ["verify", str(file), *arguments, "--out", str(scored), "--json", str(summary)]
    )
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0, None]
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert rows[3]["cause"] in ("timeout", "memory")
    found = json.loads(summary.read_text())
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["unscorable"] == {rows[3]["cause"]: 1}
    assert "0.6667" in result.output


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
