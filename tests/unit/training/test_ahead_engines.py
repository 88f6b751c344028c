"""Responses drawn one step ahead by an engine with devices of its own: while its agent is updated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from hacrl.agents.policy import Policy
from hacrl.recipe import parse_recipe
from hacrl.training.run import Stopped
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team_setup import build_team
from helpers_async import Threads, asynchronous, timeless
from helpers_train import StopAt, make_agent, metrics, outcome, recipe, run, short_answers
from helpers_vllm_server import FakeServer, serve_vllm

PATIENCE = 60
"""Seconds after which something that has to happen counts as forgotten."""


class Team:
    """Ada has a server; eve has not."""

    def __init__(self, folder: Path, frozen: bool = False) -> None:
        names = ("ada", "eve")
        self.agents = {name: make_agent(folder / name, seed, "qwen3") for seed, name in enumerate(names)}
        self.frozen = frozen
        self.servers = ExitStack()

    def serve(self) -> FakeServer:
        """A server of its own for every run, as it was started."""
        model = AutoModelForCausalLM.from_pretrained(self.agents["ada"])
        return self.servers.enter_context(serve_vllm(FakeServer(model)))

    def settings(self, server: FakeServer, **changes: Any) -> dict[str, Any]:
        evaluation = {"prompts": 3, "before": False}
        base = {"evaluation": evaluation, "sample_ahead": {"correction_cap": 1.05}, "steps": 4}
        found = recipe(self.agents, **base | changes)
        found["agents"][0]["engine"] = {"name": "vllm", "url": server.url, "retries": 0}
        if self.frozen:
            found["agents"][0]["source"] = "frozen"
        return found


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    team = Team(tmp_path / "agents")
    with team.servers:
        yield team


def steps(settings: dict[str, Any], count: int = 3) -> list[StepRecord]:
    team = build_team(parse_recipe(settings), reward_funcs=[short_answers])
    try:
        return [train_step(team, step) for step in range(1, count + 1)]
    finally:
        team.close()


def test_it_draws_while_its_agent_is_updated_and_nothing_depends_on_it(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = steps(team.settings(team.serve()))
    server, updating, beside = team.serve(), Event(), []
    start, update = Policy.start_sampling, Policy.update

    def started(self: Policy, *arguments: Any) -> bool:
        server.begins = waits
        return start(self, *arguments)

    def waits(path: str) -> None:
        if path == "/v1/completions":
            beside.append(updating.wait(PATIENCE))

    def updates(self: Policy, *arguments: Any) -> Any:
        reports = update(self, *arguments)
        if self.name == "ada":
            updating.set()  # only now its responses are drawn
        return reports

    monkeypatch.setattr(Policy, "start_sampling", started)
    monkeypatch.setattr(Policy, "update", updates)
    found = steps(team.settings(server))
    assert beside
    assert all(beside)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.trajectories == theirs.trajectories
        assert ours.weights == theirs.weights
    for before, record in pairwise(found):
        assert record.fingerprints == before.weights
        assert record.weights["ada"] != before.weights["ada"], "it learns"


def test_own_responses_are_weighted_by_the_engines_log_probs(team: Team) -> None:
    first, second = steps(team.settings(team.serve(), method="naive"), 2)
    assert first.engine_checks["ada"], "drawn by the weights that were there to check them"
    assert not second.engine_checks["ada"]
    drawn = {(t.prompt_id, t.sample): t for t in second.trajectories if t.source == "ada"}
    rows = [row for mini_batch in second.batches["ada"].mini_batches for row in mini_batch]
    weights = set()
    for row in filter(lambda row: row.own, rows):
        engine = drawn[row.prompt_id, row.sample].token_logps
        ratio = math.exp(sum(row.source_logps) - sum(engine))
        assert row.weight == pytest.approx(min(ratio, 1.05))
        weights.add(row.weight)
    assert len(weights) > 2
    assert {row.weight for row in rows if not row.own} == {1.0}


def test_what_a_frozen_agents_server_draws_is_always_checked(tmp_path: Path) -> None:
    team = Team(tmp_path / "agents", frozen=True)
    with team.servers:
        for record in steps(team.settings(team.serve())):
            assert len(record.engine_checks["ada"]) == 16
            assert max(check.difference for check in record.engine_checks["ada"].values()) < 1e-4


def test_a_stopped_run_resumes_and_one_without_waiting_is_the_same(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(team.settings(team.serve()), tmp_path / "whole")
    with pytest.raises(Stopped):
        run(team.settings(team.serve()), tmp_path / "stopped", display=StopAt(2))
    run(team.settings(team.serve()), tmp_path / "stopped", resume=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
    monkeypatch.setattr("hacrl.training.team_setup.make_runtime", lambda recipe: Threads(recipe.runtime, {}))
    run(asynchronous(team.settings(team.serve()), every=2, max_staleness=1), tmp_path / "run")
    assert timeless(tmp_path / "run") == timeless(tmp_path / "whole")
    assert all(line["agent/ada/ahead/weight"] > 0 for line in metrics(tmp_path / "run")[1:])
