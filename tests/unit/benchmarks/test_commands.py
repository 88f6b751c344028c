"""The command lines of the benchmarks: what they refuse, what they measure, what they write."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.memory import Memory
from benchmarks.runtimes import Pace, Paces
from benchmarks.scaling import Point, Scaling
from benchmarks.steps import StepCosts
from benchmarks.timing import Spread
from benchmarks.trl.parity import Check
from benchmarks.trl.result import Comparison, Side
from benchmarks.two_cores import TwoCores
from benchmarks.waiting import Teams, Waiting
from benchmarks.workload import SIZES, Workload

ROOT = Path(__file__).parents[3]
ONE = Spread(1.0, 1.0, 1.0)
SIDE = Side("trl", ONE, ONE, ONE, ONE, ONE, ONE, ONE, Memory(2.0, 1.0))
PACE = Pace(1, ONE, ONE, Spread(3.25, 3.0, 3.5), 8.0, 20.0)
WAITING = Waiting(ONE, ONE, Spread(3.25, 3.0, 3.5), ONE)


def found(work: Workload, difference: float) -> Comparison:
    sides = [SIDE, replace(SIDE, name="generic", speedup=Spread(3.25, 3.0, 3.5))]
    return Comparison(work, 7, 1, {}, ONE, sides, [Check("generic", "loss", difference, limit=1e-6)])


def run(module: str, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(import_module(f"benchmarks.{module}").app, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--size", "XL"), "--size 'XL': choose one of S, M"),
        (("--arch", "gpt2"), "--arch 'gpt2': choose one of qwen3, llama"),
        (("--eos-hazard", "1.5"), "--eos-hazard 1.5"),
        (("--eos-hazard", "-0.1"), "--eos-hazard -0.1"),
        (("--repeats", "0"), "'--repeats'"),
        (("--peer", "trl"), "No such option: --peer"),
        (("--model", "nowhere"), "nowhere is not the directory of a model"),
        (("--model", "nowhere", "--replay"), "--replay and --model do not go together"),
        (("--trl-dtype", "float16"), "--trl-dtype 'float16': choose one of auto, float32, bfloat16"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    code, _, errors = run("trl.__main__", *arguments)
    assert code == 2
    assert complaint in errors


@pytest.mark.parametrize(("difference", "expected"), [(1e-7, 0), (1e-5, 1), (float("nan"), 1)])
def test_only_disagreement_fails(
    difference: float, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def measured(work: Workload, repeats: int) -> Comparison:
        asked.append((work, repeats))
        return found(work, difference)

    monkeypatch.setattr("benchmarks.trl.__main__.compare_with_trl", measured)
    path = tmp_path / "figures.json"
    options = ("--size", "M", "--arch", "llama", "--eos-hazard", "0", "--max-new", "64")
    code, printed, _ = run(
        "trl.__main__", *options, "--replay", "--repeats", "2", "--json", str(path), "--markdown"
    )
    assert code == expected
    assert asked == [(Workload(SIZES["M"], "llama", 0.0, 64, replay=True), 2)]
    assert "3.25 (3.00 to 3.50)" in printed
    assert json.loads(path.read_text())["sides"][1]["speedup"]["median"] == 3.25


@pytest.mark.parametrize(
    ("module", "figures", "shown", "key"),
    [
        ("scaling", Scaling([Point("prompts", 4, 3.25, 1000, 10**9)]), "| 4 | 3.250 |", "points"),
        ("two_cores", TwoCores(ONE, ONE, Spread(3.25, 3.0, 3.5)), "3.25 (3.00 to 3.50)", "gain"),
        (
            "steps",
            StepCosts({"sample": 1.0, "update": 3.0}, 0.08, [2.0], [2.5]),
            "| update | 3.000 | 75.0% |\n| contextual capability, part of exchange | 0.080 | 2.0% |",
            "phases",
        ),
        ("runtimes", Paces(PACE, PACE), "3.25 (3.00 to 3.50)", "together"),
        ("waiting", Teams(WAITING, WAITING), "3.25 (3.00 to 3.50)", "unequal"),
    ],
)
def test_rounds_tables_and_figures_are_those_asked_for(
    module: str, figures: Any, shown: str, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def measured(*arguments: Any) -> Any:
        asked.append(arguments[-1])
        return figures

    monkeypatch.setattr(f"benchmarks.{module}.measure_{module}", measured)
    path = tmp_path / "figures.json"
    code, printed, _ = run(module, "--repeats", "7", "--markdown", "--json", str(path))
    assert code == 0
    assert asked == [7]
    assert shown in printed
    assert key in json.loads(path.read_text())


def test_the_rates_of_verifiers_are_shown_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def rate(speed: float) -> Callable[..., float]:
        return lambda *arguments, group=1: speed * group

    monkeypatch.setattr("benchmarks.verifiers.exact_rate", rate(25_000.0))
    monkeypatch.setattr("benchmarks.verifiers.math_rate", rate(100.0))
    code, printed, _ = run("verifiers", "--markdown", "--json", str(tmp_path / "figures.json"))
    assert code == 0
    assert "| exact matches | 25,000 | 20,000 |" in printed
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written == {"exact": 25_000.0, "math": 100.0, "math_groups": 800.0}


def test_gold_answers_are_written_as_responses(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"answer": f"2 + {n} = {n}\n#### {n}"}) + "\n" for n in range(9)))
    code, printed, _ = run("gold_responses", str(file))
    rows = [json.loads(line) for line in printed.splitlines()]
    assert code == 0
    assert rows[3] == {
        "answer": "2 + 3 = 3\n#### 3",
        "response": "The answer is \\boxed{3}.",
        "same": True,
    }
    _, printed, _ = run("gold_responses", str(file), "--shuffle", "0")
    shuffled = [json.loads(line) for line in printed.splitlines()]
    assert [row["answer"] for row in shuffled] == [row["answer"] for row in rows]
    assert sorted(row["response"] for row in shuffled) == [row["response"] for row in rows]
    assert not all(row["same"] for row in shuffled)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "trl",
        "earlier",
        "scaling",
        "long_responses",
        "engines",
        "two_cores",
        "steps",
        "runtimes",
        "waiting",
        "verifiers",
        "gold_responses",
        "exactness",
    ],
)
def test_every_benchmark_is_a_program_of_a_clone(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"python -m benchmarks.{name} [OPTIONS]" in done.stdout
