"""Agents in threads of their own, whose lateness is decided by events: nothing depends on the clock."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition
from typing import Any

import pytest

from hacrl.agents.policy import Policy
from hacrl.algorithm import ImitationObjective
from hacrl.recipe import parse_recipe
from hacrl.runtime import AgentLost
from hacrl.training.async_loop import next_barrier, steps_until_barrier
from hacrl.training.process import StopRequest
from hacrl.training.run import Stopped
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team
from hacrl.training.team_setup import build_team
from helpers_async import Threads, asynchronous, timeless
from helpers_train import Silent, make_agent, metrics, recipe, run, short_answers

RESPONSES = 4 * 4
"""Of an agent in a step."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("agents")
    agents = {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3, cut="digit-pairs")}
    return recipe(agents, evaluation={"prompts": 3, "before": False})


@pytest.fixture(autouse=True)
def _threads(monkeypatch) -> None:
    monkeypatch.setattr("hacrl.training.team_setup.make_runtime", lambda recipe: Threads(recipe.runtime, {}))


def test_without_staleness_it_is_the_synchronous_run_bit_by_bit_even_when_stopped_and_resumed(
    settings, tmp_path, monkeypatch
):
    run(settings | {"runtime": "local"}, tmp_path / "synchronous")
    changed = asynchronous(settings, every=10, max_staleness=0)
    with pytest.raises(Stopped) as stopped:
        run(changed, tmp_path / "run", display=Interrupting(monkeypatch))
    assert stopped.value.step == 3
    monkeypatch.undo()
    monkeypatch.setattr("hacrl.training.team_setup.make_runtime", lambda recipe: Threads(recipe.runtime, {}))
    run(changed, tmp_path / "run", resume=True)
    assert timeless(tmp_path / "run") == timeless(tmp_path / "synchronous")


class Interrupting(Silent):
    """As if Ctrl-C had been pressed when eve begins its second step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._request = StopRequest()

        @contextmanager
        def stop_requests() -> Iterator[StopRequest]:
            yield self._request

        monkeypatch.setattr("hacrl.training.run.stop_requests", stop_requests)

    def status(self, text: str) -> None:
        if text.endswith("eve in step 2"):
            self._request.signal = signal.SIGINT


def test_a_fast_agent_goes_on_until_its_peer_is_too_late_and_receives_it_later(settings):
    """Eve responds in a step only when ada is a step further: always one step late."""
    watch = Watch()
    team = make_team(asynchronous(settings | {"method": "naive"}, every=4, max_staleness=1), watch)
    watch.hold("eve", until=lambda step: watch.steps["ada"] >= min(4, step + 1))
    first, second, third, last = steps_until_barrier(team, 1, say=watch.say)
    assert 1 <= max(watch.leads) <= 2  # it draws one step more and waits until it may learn from it
    assert [record.staleness for record in (first, second, third)] == [
        {"ada": 0.0, "eve": 0.0},
        {"ada": 1.0, "eve": 0.0},
        {"ada": 1.0, "eve": 0.0},
    ]
    assert last.staleness == {"ada": 0.5, "eve": 0.0}  # two steps' responses at the barrier
    assert not any(record.dropped["ada"] for record in (first, second, third, last))
    assert sources(first, "ada") == {"ada"}
    assert len(rows(last, "ada", "eve")) == 2 * RESPONSES
    assert {prompt.id for prompt in second.prompts} == ids(team, 1) | ids(team, 2)

    in_time = train_step(make_team(settings | {"method": "naive"}, Watch()), 1)
    assert rows(second, "ada", "eve") == rows(in_time, "ada", "eve")  # with the same advantages
    assert first.trajectories == in_time.trajectories


@pytest.mark.parametrize("method", ["commons", "sft_strongest", "ftis", "hacpo_muted"])
def test_without_staleness_every_method_that_can_be_late_is_the_synchronous_one(settings, method):
    waiting = make_team(settings | {"method": method}, Watch())
    in_time = [train_step(waiting, step) for step in (1, 2, 3)]
    free = make_team(asynchronous(settings | {"method": method}, every=3, max_staleness=0), Watch())
    found = list(steps_until_barrier(free, 1))
    for record, expected in zip(found, in_time, strict=True):
        for name, batch in record.batches.items():
            assert batch.mini_batches == expected.batches[name].mini_batches
            assert batch.left_out == expected.batches[name].left_out
    assert weights(free) == weights(waiting)


def test_commons_imitates_what_it_receives_late_once_with_as_many_updates(settings):
    """Eve is always a step late; ada's gate is open."""
    watch, method = Watch(), {"name": "commons", "passes": 2, "gate": False}
    team = make_team(asynchronous(settings | {"method": method}, every=4, max_staleness=1), watch)
    watch.hold("eve", until=lambda step: watch.steps["ada"] >= min(4, step + 1))
    records = list(steps_until_barrier(team, 1, say=watch.say))
    pools = [imitated(record, "ada") for record in records]
    received = [{prompt for source, prompt, _ in pool if source == "eve"} for pool in pools]
    assert [{n for n in range(1, 5) if ids(team, n) & prompts} for prompts in received] == [
        set(),
        {1},
        {2},
        {3, 4},
    ]
    order = [[row.source for row, *_ in part.updates] for part in records[1].batches["ada"].update_groups]
    assert [sources for sources in order if sources] == [["ada"] * 2, ["ada"], ["eve"], ["ada"], ["eve"]]
    everything = sum(pools, Counter())
    assert set(everything.values()) == {2}  # in every pass
    right = [t for record in records for t in record.trajectories if t.reward == 1.0]
    assert everything.keys() <= {(t.source, t.prompt_id, t.sample) for t in right}
    assert len(everything) == len({(t.source, t.prompt_id, t.text) for t in right})
    assert [len(record.reports["ada"]) for record in records] == [2 + 2, 2 + 2 + 2, 2 + 2 + 2, 2 + 4 + 2]
    assert [len(record.reports["eve"]) for record in records] == [2 + 4] * 4


def test_of_three_agents_each_verifies_every_response_of_its_peers_once(settings):
    """Eve lies about all its rewards, kim is always a step late."""
    watch = Watch()
    agents = [*settings["agents"], settings["agents"][0] | {"name": "kim"}]
    changed = asynchronous(settings | {"method": "commons", "agents": agents}, every=4, max_staleness=1)
    team = make_team(changed, watch)
    team.deliver = lambda trajectories, learner, step: [
        replace(t, reward=1.0 - t.reward) if t.source == "eve" != learner else t for t in trajectories
    ]
    watch.hold("kim", until=lambda step: watch.steps["ada"] >= min(4, step + 1))
    records = list(steps_until_barrier(team, 1, say=watch.say))
    assert sources(records[0], "ada") == {"ada"}
    assert records[1].staleness["ada"] > 0
    assert sum(record.rejected["reward_differs"] for record in records) == 4 * 2 * RESPONSES


def test_responses_that_come_too_late_are_dropped_and_counted(settings):
    """Ada does not wait, eve begins when ada is at the barrier."""
    watch = Watch()
    team = make_team(asynchronous(settings, every=4, max_staleness=1, wait_seconds=0), watch)
    watch.hold("eve", until=lambda step: watch.steps["ada"] == 4)
    *alone, last = steps_until_barrier(team, 1, say=watch.say)
    assert [sources(record, "ada") for record in alone] == [{"ada"}] * 3
    assert [sources(record, "eve") for record in alone] == [{"ada", "eve"}] * 3
    assert (last.dropped["ada"], last.dropped["eve"]) == (2 * RESPONSES, 0)
    assert last.staleness == {"ada": 0.5, "eve": 0.0}
    assert {row.prompt_id for row in rows(last, "ada", "eve")} <= ids(team, 3) | ids(team, 4)


def test_nobody_waits_for_an_agent_that_failed(settings):
    watch = Watch()
    team = make_team(asynchronous(settings, every=4, max_staleness=0), watch)
    watch.hold("eve", until=lambda step: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        steps_until_barrier(team, 1, say=watch.say)
    assert watch.steps["ada"] == 4


def test_the_others_go_on_without_an_agent_that_is_lost_while_it_learns(settings, tmp_path, monkeypatch):
    real = Policy.update

    def update(policy: Policy, *arguments: Any, **options: Any) -> Any:
        if policy.name == "eve" and (tmp_path / "run" / "metrics.jsonl").exists():
            raise AgentLost("eve", "gone")
        return real(policy, *arguments, **options)

    monkeypatch.setattr(Policy, "update", update)
    changed = asynchronous(settings, every=2, max_staleness=1)
    summary = run(changed, tmp_path / "run")
    assert summary["agents"]["eve"]["retired"] == "agent 'eve' was lost: gone"
    ada = summary["agents"]["ada"]  # eve's responses of the third step were received
    assert ada["updates"] + ada["skipped_updates"] == (2 + 2) * 3 + 2
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3, 4]


@pytest.mark.parametrize(("step", "barrier"), [(1, 4), (4, 4), (5, 6), (7, 8), (9, 10), (10, 10)])
def test_the_barriers_are_where_agents_are_saved_or_evaluated_and_at_the_end(settings, step, barrier):
    changed = asynchronous(settings, every=4) | {"steps": 10, "evaluation": {"every": 6}}
    assert next_barrier(parse_recipe(changed), step) == barrier


class Watch:
    """Knows in which step every agent is; agents can be held until others are where they should be."""

    def __init__(self) -> None:
        self.steps = {"ada": 0, "eve": 0}
        self.leads: list[int] = []
        self._moved = Condition()
        self._held: dict[str, Callable[[int], bool]] = {}

    def say(self, text: str) -> None:
        with self._moved:
            self.steps = {place.split()[0]: int(place.split()[-1]) for place in text.split(", ")}
            self.leads.append(self.steps["ada"] - self.steps["eve"])
            self._moved.notify_all()

    def hold(self, agent: str, until: Callable[[int], bool]) -> None:
        self._held[agent] = until

    def pause(self, agent: str) -> None:
        with self._moved:
            step = self.steps[agent]
            self._moved.wait_for(lambda: agent not in self._held or self._held[agent](step))


class Held:
    """An agent that pauses before it responds."""

    def __init__(self, policy: Any, watch: Watch) -> None:
        self._policy = policy
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def sample(self, *arguments: Any) -> Any:
        self._watch.pause(self._policy.name)
        return self._policy.sample(*arguments)


def make_team(settings: dict[str, Any], watch: Watch) -> Team:
    team = build_team(parse_recipe(settings), reward_funcs=[short_answers])
    team.members = tuple(replace(member, policy=Held(member.policy, watch)) for member in team.members)
    return team


def rows(record: StepRecord, learner: str, source: str) -> list[Any]:
    mini_batches = record.batches[learner].mini_batches
    return [row for mini_batch in mini_batches for row in mini_batch if row.source == source]


def imitated(record: StepRecord, learner: str) -> Counter[tuple[str, str, int]]:
    """How often the learner imitates each response in the step: source, prompt, number."""
    return Counter(
        (row.source, row.prompt_id, row.sample)
        for group in record.batches[learner].update_groups
        if isinstance(group.objective, ImitationObjective)
        for mini_batch in group.updates
        for row in mini_batch
    )


def weights(team: Team) -> dict[str, str]:
    return {member.name: member.policy.fingerprint() for member in team.members}


def sources(record: StepRecord, learner: str) -> set[str]:
    return {row.source for mini_batch in record.batches[learner].mini_batches for row in mini_batch}


def ids(team: Team, step: int) -> set[str]:
    return {prompt.id for prompt in team.order.batch(step)}
