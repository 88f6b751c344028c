from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import runtimes
from benchmarks.runtimes import Pace, Paces, runtime_table
from benchmarks.timing import Spread


def test_overhead_is_told_of_one_agent_and_the_gain_of_two() -> None:
    alone = Pace(1, Spread(100, 90, 110), Spread(96, 90, 100), Spread(0.96, 0.95, 0.97), 8.0, 20.0)
    together = Pace(2, Spread(50, 45, 55), Spread(90, 80, 95), Spread(1.8, 1.7, 1.9), 8.0, 20.0)
    assert runtime_table(Paces(alone, together)).rows == [
        ("1 agent", "100", "96", "0.96 (0.95 to 0.97)", "+4.2%", "8.0", "20.0"),
        ("2 agents", "50", "90", "1.80 (1.70 to 1.90)", "", "8.0", "20.0"),
    ]


def test_runtimes_take_turns_in_coming_first_and_the_first_round_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    def step(team: Any, number: int) -> str:
        begun.append(f"{team.name}{number}")
        return begun[-1]

    monkeypatch.setattr(runtimes, "train_step", step)
    teams: Any = {name: SimpleNamespace(name=name, members=[None]) for name in ("local", "ray")}
    rounds = list(runtimes._rounds(teams, 2))
    assert begun == ["local1", "ray1", "ray2", "local2", "local3", "ray3"]
    assert rounds == [{"ray": "ray2", "local": "local2"}, {"local": "local3", "ray": "ray3"}]
