"""The check of simulated engines, with workers that take exactly what the formulas say."""

from __future__ import annotations

import json
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from benchmarks import engines
from benchmarks.engines import FITTED, PREDICTED, _amounts, _work, app, name_of, predict
from benchmarks.workload import workload_from_json

COSTS = {"generate": (4e-11, 2e-11, 3e-3, 2e-4), "score": (2e-11, 1e-11, 1e-3), "sync": (0.0, 3e-10, 0.0)}


def seconds(case: Any, part: str) -> float:
    return sum(a * c for a, c in zip(_amounts(part, _work(part, case)), COSTS[part], strict=True))


class Exact:
    """A worker whose first answer is far off: it is still warming up."""

    slower = 1.0

    def __init__(self, name: str, module: str, settings: str) -> None:
        assert module == "benchmarks.engine_worker"
        self._case = workload_from_json(settings)
        assert name == name_of(self._case)
        self._asked: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def ask(self, question: str) -> dict[str, float]:
        self._asked.append(question)
        generate, sync, score = (seconds(self._case, part) for part in ("generate", "sync", "score"))
        if self._case in PREDICTED:
            generate *= self.slower
        warm = 9.0 if len(self._asked) == 1 else 1.0
        same = warm * (generate + score)
        return {"same": same, "changed": same + sync, "score": warm * score, "tokens": 0}


def test_the_formulas_predict_what_follows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "Worker", Exact)
    result = CliRunner().invoke(app, ["--repeats", "2", "--markdown"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("| +0% |") + result.stdout.count("| -0% |") == len(PREDICTED)
    assert "3 ms per step of the engine, 200 microseconds per token" in " ".join(result.stdout.split())


def test_more_than_20_percent_off_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "Worker", Exact)
    monkeypatch.setattr(Exact, "slower", 2.0)
    assert CliRunner().invoke(app, ["--repeats", "1"]).exit_code == 1


def test_new_weights_cost_what_their_bytes_do() -> None:
    parts = ("generate", "sync", "score")
    measured = [{part: seconds(case, part) for part in parts} for case in (*FITTED, *PREDICTED)]
    found = predict([{**each, "step": sum(each.values())} for each in measured])
    for case, step in zip(PREDICTED, found.steps, strict=True):
        assert step.predicted["sync"] == pytest.approx(seconds(case, "sync"))
        assert step.error == pytest.approx(0.0, abs=1e-6)
    assert json.loads(json.dumps(name_of(PREDICTED[0]))) == "3x256, vocabulary 1000, 16x4x48"
