"""Responses drawn one step ahead: by which weights, with which correction, and whatever happens meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hacrl.agents.policy import Policy
from hacrl.recipe import RecipeError, parse_recipe
from hacrl.runs.checkpoints import CheckpointStore
from hacrl.runs.contents import AHEAD, check
from hacrl.runs.files import StorageError
from hacrl.training import rollouts
from hacrl.training.ahead import DrawnAhead, SampledAhead
from hacrl.training.run import Stopped, read_ahead
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team
from hacrl.training.team_setup import build_team
from hacrl.types import EngineCheck, Rollout
from helpers_async import Threads, asynchronous, timeless
from helpers_train import StopAt, make_agent, metrics, outcome, recipe, run, short_answers


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("agents")
    agents = {name: make_agent(folder / name, seed) for seed, name in enumerate(("ada", "eve"))}
    evaluation = {"prompts": 3, "before": False}
    return recipe(agents, evaluation=evaluation, sample_ahead={"correction_cap": 1.05}, steps=4)


def team_of(settings: dict[str, Any]) -> Team:
    return build_team(parse_recipe(settings), reward_funcs=[short_answers])


def test_the_next_steps_responses_are_those_of_the_weights_before_this_steps_updates(
    settings: dict[str, Any],
) -> None:
    team, fresh = team_of(settings), team_of(settings)
    records = [train_step(team, step) for step in (1, 2, 3, 4)]
    assert records[0].fingerprints == records[0].weights
    for before, record in pairwise(records):
        assert record.fingerprints == before.weights
        assert record.weights != before.weights
        assert {t.fingerprint for t in record.trajectories} == set(before.weights.values())
    prompts, seed = fresh.order.batch(2), fresh.seed(2)
    for member in fresh.members:  # nobody has learned yet
        drawn = member.policy.sample(prompts, member.samples, fresh.sampling, seed)
        found = [t for t in records[1].trajectories if t.source == member.name]
        expected = {(r.prompt_id, r.sample): (r.text, r.token_logps) for r in drawn}
        assert {(t.prompt_id, t.sample): (t.text, t.token_logps) for t in found} == expected
    assert team.ahead is not None
    assert not team.ahead.state_dict(), "there is no fifth step"


def test_own_responses_start_at_a_ratio_of_1_with_a_truncated_weight_and_peers_at_what_drew_them(
    settings: dict[str, Any],
) -> None:
    team = team_of(settings | {"method": "naive"})
    first, second = train_step(team, 1), train_step(team, 2)
    assert {row.weight for row in _rows(first, "ada")} == {1.0}
    drawn = {(t.source, t.prompt_id, t.sample): t for t in second.trajectories}
    own = [row for row in _rows(second, "ada") if row.own]
    for row in own:
        ratio = math.exp(sum(row.source_logps) - sum(drawn["ada", row.prompt_id, row.sample].token_logps))
        assert row.weight == pytest.approx(min(ratio, 1.05))
    assert len({row.weight for row in own}) > 2
    assert max(row.weight for row in own) == pytest.approx(1.05)
    for row in _rows(second, "ada"):
        if not row.own:
            assert row.weight == 1.0
            assert row.source_logps[:1] == drawn[row.source, row.prompt_id, row.sample].token_logps[:1]
    mini_batch, report = second.batches["ada"].mini_batches[0], second.reports["ada"][0]
    for row, now in zip(mini_batch, report.mean_logps, strict=True):
        assert math.isnan(now) or now == pytest.approx(row.source_mean_logp, abs=1e-5)


def _rows(record: StepRecord, learner: str) -> list[Any]:
    return [row for mini_batch in record.batches[learner].mini_batches for row in mini_batch]


class Later:
    """Draws when everything else is done, as if verifiers were much faster."""

    def __init__(self, workers: int) -> None: ...

    def __enter__(self) -> Later:
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Later:
        self._task = lambda: task(*arguments)
        return self

    def result(self) -> Any:
        return self._task()


class AtOnce(Later):
    """Draws before anything else is done."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Later:
        task(*arguments)
        self._task = lambda: None
        return self


@pytest.mark.parametrize("executor", [Later, AtOnce])
def test_it_does_not_matter_when_they_are_drawn(
    executor: type[Later], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = team_of(settings)
    expected = [train_step(beside, step).trajectories for step in (1, 2, 3)]
    monkeypatch.setattr(rollouts, "ThreadPoolExecutor", executor)
    team = team_of(settings)
    assert [train_step(team, step).trajectories for step in (1, 2, 3)] == expected
    for ours, theirs in zip(team.members, beside.members, strict=True):
        assert ours.policy.fingerprint() == theirs.policy.fingerprint()


class Crash(Exception): ...


def test_a_run_that_stops_or_crashes_resumes_bit_by_bit(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings | {"checkpoint": {"every": 2}}
    run(settings, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(settings, tmp_path / "stopped", display=StopAt(1))
    held = read_ahead(_newest(tmp_path / "stopped"))
    assert {name: found["step"] for name, found in held.items()} == {"ada": 2, "eve": 2}
    run(settings, tmp_path / "stopped", resume=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")

    real, left = Policy.sample, iter(range(7))

    def sample(*arguments: Any) -> Any:
        if next(left) == 6:  # in step 3, which has drawn for step 4 alone: 2 in the first, 2 in the others
            raise Crash
        return real(*arguments)

    monkeypatch.setattr(Policy, "sample", sample)
    with pytest.raises(Crash):
        run(settings, tmp_path / "crashed")
    monkeypatch.undo()
    assert _newest(tmp_path / "crashed").step == 2
    run(settings, tmp_path / "crashed", resume=True)
    assert outcome(tmp_path / "crashed") == outcome(tmp_path / "whole")


def _newest(out: Path) -> Any:
    store = CheckpointStore(out / "checkpoints", 1)
    found = store.latest()
    store.close()
    return found


def test_agents_that_need_not_wait_count_the_age_of_responses(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one step old: with those drawn ahead nobody may be late, and it is the synchronous run."""
    run(settings, tmp_path / "synchronous")
    monkeypatch.setattr("hacrl.training.team_setup.make_runtime", lambda recipe: Threads(recipe.runtime, {}))
    run(asynchronous(settings, every=2, max_staleness=1), tmp_path / "run")
    assert timeless(tmp_path / "run") == timeless(tmp_path / "synchronous")
    lines = [line for line in metrics(tmp_path / "run") if "async/ada/staleness" in line]
    assert [line["async/ada/staleness"] for line in lines] == [0.0, 1.0, 1.0, 1.0]
    assert "agent/ada/ahead/weight" not in lines[0]
    assert all(line["agent/ada/ahead/logp_difference_max"] > 0 for line in lines[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dynamic_sampling": 1}, "dynamic_sampling: expected 0 with sample_ahead"),
        (
            {"exchange": {"asynchronous": {"max_staleness": 0}}, "checkpoint": {"every": 2}},
            "exchange.asynchronous.max_staleness: expected at least 1 with sample_ahead, got 0",
        ),
        ({"sample_ahead": {"correction_cap": 0.5}}, "sample_ahead.correction_cap"),
    ],
)
def test_what_does_not_go_with_it(settings: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        parse_recipe(settings | changes)
    assert message in str(error.value)


def test_what_is_kept_is_plain_and_checked(tmp_path: Path) -> None:
    engine = EngineCheck(-1.0, -1.5, 0.5, rescored=True, weight=0.25)
    rollout = Rollout("p", 3, "12", (4, 6), (-0.1, -0.25), "stop", engine, stop="x", ending="x")
    first, second = SampledAhead(), SampledAhead()
    first.keep("ada", DrawnAhead(7, "f", (rollout,)))
    state = first.state_dict()
    second.load_state_dict(state)
    plain = {"ada": {**state["ada"], "rollouts": [{**state["ada"]["rollouts"][0], "token_ids": [4, "6"]}]}}
    with pytest.raises(StorageError, match=r"ahead.json is not drawn: ada\.rollouts\.0\.token_ids"):
        check(tmp_path / "ahead.json", AHEAD, plain, "drawn")
    assert second.take("ada", 7) == DrawnAhead(7, "f", (rollout,))
    assert second.take("ada", 7) is None
    assert first.take("ada", 8) is None
