import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hacrl.bench.peer import compare
from hacrl.bench.peer.result import Check, Comparison, Memory, Side, Spread
from hacrl.bench.peer.workload import SIZES, Workload
from hacrl.cli.app import app

ONE = Spread(1.0, 1.0, 1.0)
SIDE = Side("trl", ONE, ONE, ONE, ONE, ONE, ONE, ONE, Memory(2.0, 1.0))


def found(work: Workload, difference: float) -> Comparison:
    sides = [SIDE, dataclasses.replace(SIDE, name="generic", speedup=Spread(3.25, 3.0, 3.5))]
    return Comparison(work, 7, 1, {}, ONE, sides, [Check("generic", "loss", difference, limit=1e-6)])


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["bench", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "choose one thing to measure"),
        (("--peer", "trl", "--scaling"), "choose one thing to measure"),
        (("--peer", "verl"), "--peer 'verl': choose one of trl"),
        (("--peer", "trl", "--size", "XL"), "--size 'XL': choose one of S, M"),
        (("--peer", "trl", "--arch", "gpt2"), "--arch 'gpt2': choose one of qwen3, llama"),
        (("--peer", "trl", "--eos-hazard", "1.5"), "--eos-hazard 1.5"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    code, _, errors = run(*arguments)
    assert code == 2
    assert complaint in errors


@pytest.mark.parametrize(("difference", "expected"), [(1e-7, 0), (1e-5, 1), (float("nan"), 1)])
def test_only_disagreement_fails(
    difference: float, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def measured(work: Workload, repeats: int, progress: object) -> Comparison:
        asked.append((work, repeats))
        return found(work, difference)

    monkeypatch.setattr(compare, "compare_with_trl", measured)
    path = tmp_path / "figures.json"
    options = ("--peer", "trl", "--size", "M", "--arch", "llama", "--eos-hazard", "0", "--max-new", "64")
    code, printed, _ = run(*options, "--replay", "--repeats", "2", "--json", str(path), "--markdown")
    assert code == expected
    assert asked == [(Workload(SIZES["M"], "llama", 0.0, 64, replay=True), 2)]
    assert "3.25 (3.00 to 3.50)" in printed
    assert json.loads(path.read_text())["sides"][1]["speedup"]["median"] == 3.25
