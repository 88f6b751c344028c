"""One step: records that are merged field by field, and peers' rewards that are verified again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from hacrl.algorithm import Belief, GspoObjective
from hacrl.recipe import parse_recipe
from hacrl.rewards.scores import Score
from hacrl.runtime import Traffic
from hacrl.sharing import LearnerBatch, UpdateGroup, own_ending
from hacrl.training.beliefs import StepBelief
from hacrl.training.rollouts import without_advantage
from hacrl.training.run import Progress
from hacrl.training.step import train_step, update
from hacrl.training.step_metrics import step_metrics
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Member, Team
from hacrl.training.team_setup import build_team
from hacrl.types import EngineCheck, Prompt, Trajectory
from helpers_agents import random_rows, training_rows
from helpers_sharing import trajectory
from helpers_train import make_agent, recipe, short_answers

BELIEF = Belief(torch.ones(1, 1), torch.ones(1, 1))


def part(agent: str, *prompts: str) -> StepRecord:
    """One agent's record of step 7, with something in every field."""
    check = EngineCheck(-1.0, -1.0, 0.0, rescored=False)
    record = StepRecord(
        7,
        trajectories=(trajectory(agent, step=7),),
        replaced=(trajectory(agent, "p9", step=7),),
        omega=torch.zeros(2, 2),
        prompts=tuple(Prompt(name, name) for name in prompts),
        method_metrics={f"agent/{agent}/gate/accepted": 0.5},
        predictions={agent: StepBelief(("p0",), BELIEF, BELIEF, torch.ones(1, 1), torch.ones(1, 1))},
        batches={agent: LearnerBatch((), Counter())},
        reports={agent: []},
        rejected=Counter(reward_differs=2),
        unscorable=Counter(timeout=1),
        pool=Counter(sent=1),
        notices=(f"notice of {agent}",),
        fingerprints={agent: f"weights-{agent}"},
        weights={agent: f"later-weights-{agent}"},
        failures={agent: "no"},
        cosines={("x", agent): {"cosine": 0.5}},
        staleness={agent: 1.5},
        dropped=Counter({agent: 3}),
        began={"a": 5.0, "b": 4.0}[agent],
        begins={"verify": {"a": 6.0, "b": 7.0}[agent]},
        ends={"verify": {"a": 6.5, "b": 7.5}[agent]},
        memory={agent: [100]},
        elapsed=9.0,
        traffic={agent: Traffic(1, 2)},
    )
    record.engine_checks[agent]["p", 0] = check
    record.ahead_checks[agent]["p", 0] = check
    record.seconds.update({"verify": 1.25, f"update/{agent}": 2.0})
    return record


def test_every_field_of_a_record_says_how_it_is_merged() -> None:
    assert [each.name for each in fields(StepRecord) if "merge" not in each.metadata] == []


def test_merging_loses_nothing_that_an_agent_recorded() -> None:
    whole = StepRecord.merge(7, [part("a", "p0", "p1"), part("b", "p1", "p2")])
    assert [t.source for t in whole.trajectories] == ["a", "b"]
    assert [t.source for t in whole.replaced] == ["a", "b"]
    assert [prompt.id for prompt in whole.prompts] == ["p0", "p1", "p2"]
    assert whole.rejected == {"reward_differs": 4}
    assert whole.unscorable == {"timeout": 2}
    assert whole.pool == {"sent": 2}
    assert whole.notices == ("notice of a", "notice of b")
    assert whole.dropped == {"a": 3, "b": 3}
    assert whole.seconds == {"verify": 2.5, "update/a": 2.0, "update/b": 2.0}
    assert whole.engine_checks.keys() == whole.ahead_checks.keys() == {"a", "b"}
    assert whole.drawn_ahead("a")
    assert whole.method_metrics.keys() == {"agent/a/gate/accepted", "agent/b/gate/accepted"}
    assert whole.cosines.keys() == {("x", "a"), ("x", "b")}
    assert (whole.began, whole.begins, whole.ends) == (4.0, {"verify": 6.0}, {"verify": 7.5})
    for name in ("batches", "reports", "fingerprints", "failures", "staleness", "traffic", "memory"):
        assert getattr(whole, name).keys() == {"a", "b"}, name
    assert whole.elapsed == 0.0  # this and omega belong to the whole step
    assert whole.omega.shape == (0, 0)


def test_the_record_that_is_merged_here_leaves_no_field_at_its_default() -> None:
    filled, empty = part("a", "p0"), StepRecord(0)
    equal = [
        each.name
        for each in fields(StepRecord)
        if each.name != "omega" and getattr(filled, each.name) == getattr(empty, each.name)
    ]
    assert equal == []


def test_only_records_of_one_step_are_merged() -> None:
    with pytest.raises(ValueError, match="steps 8 and 7 cannot be merged"):
        StepRecord.merge(8, [part("a")])


@pytest.mark.parametrize("updates", [1, 2, 5])
def test_learning_rates_do_not_depend_on_the_number_of_updates_in_a_step(updates: int) -> None:
    """Each update gets the middle of its share of step 7, so that all of them together get its middle."""
    asked: list[tuple[int, float]] = []

    class Spy:
        name = "a"

        def update(self, rows: Any, objective: Any, done: int, steps_done: float) -> list[Any]:
            asked.append((done, steps_done))
            return []

        def memory(self) -> list[int]:
            return []

    row = training_rows(random_rows(1, 1))
    group = UpdateGroup(GspoObjective(), (row,), passes=updates)
    record = StepRecord(7, batches={"a": LearnerBatch((group,), Counter())})
    update(Member(Spy(), 1, None), record)  # type: ignore[arg-type]
    assert [done for done, _ in asked] == list(range(updates))
    places = [steps for _, steps in asked]
    assert fmean(places) == pytest.approx(6.5)
    assert (min(places), max(places)) == pytest.approx((6 + 0.5 / updates, 7 - 0.5 / updates))


class SecondThoughts:
    """A rewarder that cannot score one response when it is asked a second time."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.calls: list[tuple[int, bool]] = []
        """Responses in the batch, and whether the share without a reward is limited."""

    def score(self, prompts: Sequence[Any], *batch: Any, limit_unscorable: bool = True) -> list[Score]:
        self.calls.append((len(prompts), limit_unscorable))
        scores: list[Score] = self._real.score(prompts, *batch, limit_unscorable=limit_unscorable)
        if not limit_unscorable and sum(not limited for _, limited in self.calls) == 1:
            scores[0] = Score(None, "timeout")
        return scores

    def close(self) -> None:
        self._real.close()


def step_team(tmp_path: Path, reward: Any = short_answers, **changes: Any) -> Team:
    """Two agents with different tokenizers."""
    agents = {
        "ada": make_agent(tmp_path / "ada", 0),
        "eve": make_agent(tmp_path / "eve", 1, arch="qwen3", cut="digit-pairs"),
    }
    return build_team(parse_recipe(recipe(agents, **changes)), reward_funcs=[reward])


@pytest.mark.parametrize("method", ["hacpo", "commons"])
def test_a_step_with_stop_strings(tmp_path: Path, method: str) -> None:
    sampling = {"max_new_tokens": 12, "stop": list("3579e")}
    team = step_team(tmp_path, method=method, sampling=sampling)
    record = train_step(team, 1)
    ended = [t for t in record.trajectories if t.stop]
    assert len({t.source for t in ended}) == 2
    assert all(t.finish_reason == "stop" and t.stop not in t.text for t in ended)
    by_id = {(t.source, t.prompt_id, t.sample): t for t in record.trajectories}
    peers = 0
    for member in team.members:
        encoder, ending = member.policy.encoder, own_ending(record.trajectories, member.name)
        for row in (row for rows in record.batches[member.name].mini_batches for row in rows):
            source = by_id[row.source, row.prompt_id, row.sample]
            if row.own:
                assert row.response_ids == source.token_ids
                continue
            peers += 1
            text = source.written
            if method == "commons" and source.finish_reason == "stop":
                text = source.text + ending
            assert encoder.decode_response(row.response_ids) == text
            if method == "hacpo":
                assert row.source_mean_logp == pytest.approx(fmean(source.exchanged_logps))
    assert peers > 3
    assert all(record.reports.values())
    team.close()


@pytest.mark.parametrize("method", ["hacpo", "commons", "gspo"])
def test_truncated_responses_are_left_out_of_the_loss_but_not_of_the_baselines(
    tmp_path: Path, method: str
) -> None:
    rows: dict[bool, dict[Any, float]] = {}
    for masked in (False, True):
        team = step_team(tmp_path, method=method, updates={"mask_truncated": masked})
        record = train_step(team, 1)
        team.close()
        cut = {t.id for t in record.trajectories if t.finish_reason == "length"}
        metrics = step_metrics(team, record, [])
        rows[masked] = {
            (name, f"1/{row.prompt_id}/{row.source}/{row.sample}"): row.advantage
            for name, batch in record.batches.items()
            for mini_batch in batch.mini_batches
            for row in mini_batch
        }
        for name in team.names:
            received = [t.id for t in record.trajectories if method != "gspo" or t.source == name]
            expected = len(cut.intersection(received)) if masked else 0
            assert metrics.get(f"agent/{name}/left_out/truncated", 0) == expected
    assert cut
    kept = {key for key in rows[False] if key[1] not in cut}
    assert rows[True].keys() == kept != rows[False].keys()
    if method != "commons":  # an imitated text weighs more if there are fewer
        assert rows[True] == {key: rows[False][key] for key in kept}


def rare_success(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    return [float(completion[:1] in "aeiouAEIOU+-=") for completion in completions]


@pytest.mark.parametrize("method", ["hacpo", "commons"])
def test_prompts_without_advantage_are_replaced(tmp_path: Path, method: str) -> None:
    plain = step_team(tmp_path, rare_success, method=method, prompts_per_step=12)
    before = train_step(plain, 1)
    plain.close()
    team = step_team(tmp_path, rare_success, method=method, prompts_per_step=12, dynamic_sampling=3)
    record = train_step(team, 1)
    team.close()

    first = team.order.batch(1)
    useless = without_advantage(before.trajectories)
    assert 0 < len(useless) < len(first)
    # What was drawn first is the same, and the groups with an advantage stay as they are.
    assert {t.id for t in before.trajectories} <= {t.id for t in record.drawn}
    kept = {t.id for t in before.trajectories if t.prompt_id not in useless}
    assert kept <= {t.id for t in record.trajectories}
    assert not useless & {t.prompt_id for t in record.trajectories}
    assert len(without_advantage(record.trajectories)) < len(useless)
    # As many responses as ever are trained on; the others count as drawn.
    metrics = step_metrics(team, record, [])
    for name in team.names:
        assert [sum(t.source == name for t in some.trajectories) for some in (before, record)] == [48, 48]
        assert metrics[f"agent/{name}/replaced"] == sum(t.source == name for t in record.replaced)
        rewards = [t.reward for t in record.drawn if t.source == name and t.reward is not None]
        assert metrics[f"agent/{name}/reward"] == pytest.approx(fmean(rewards))
    assert record.replaced
    progress = Progress()
    progress.count(record)
    assert sum(totals["rollouts"] for totals in progress.totals.values()) == len(record.drawn)


def test_replacing_ends_when_the_task_has_no_other_prompts(tmp_path: Path) -> None:
    def never(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
        return [0.0] * len(completions)

    task = {"name": "digits", "train": 6, "test": 3}
    team = step_team(tmp_path, never, method="gspo", task=task, dynamic_sampling=9)
    record = train_step(team, 1)
    team.close()
    assert len(record.replaced) == 2 * 2 * 4  # two prompts were left; two agents, four responses each
    assert {t.prompt_id for t in record.drawn} == {prompt.id for prompt in team.task.train}


def test_no_advantage_means_equal_rewards_in_every_agents_own_group() -> None:
    def group(source: str, prompt_id: str, *rewards: float | None) -> list[Trajectory]:
        return [trajectory(source, prompt_id, n, reward=reward) for n, reward in enumerate(rewards)]

    found = [
        *group("a", "p0", 1.0, 1.0),
        *group("b", "p0", 0.0, 0.0),  # the two differ, but neither within its own group
        *group("a", "p1", 0.0, 0.0),
        *group("b", "p1", 0.0, 1.0),
        *group("a", "p2", None, 1.0),
        *group("b", "p3", None, None),
    ]
    assert without_advantage(found) == {"p0", "p2", "p3"}


@pytest.fixture
def team(tmp_path: Path) -> Team:
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ada", "eve", "kim"))}
    settings = recipe(agents, method="commons", reward={"max_unscorable": 0.0})
    return build_team(parse_recipe(settings), reward_funcs=[short_answers])


def test_peers_are_verified_in_one_batch_per_learner_and_a_time_out_costs_one_response(team: Team) -> None:
    rewarder = SecondThoughts(team.rewarder)
    team.rewarder = rewarder  # type: ignore[assignment]
    record = train_step(team, 1)
    first, second = [(16, True)] * 3, [(32, False)] * 3
    assert rewarder.calls == first + second
    assert record.rejected == {"reward_unconfirmed": 1}
    assert not record.failures
    assert step_metrics(team, record, [])["rejected/reward_unconfirmed"] == 1
    assert all(record.reports.values())
    train_step(team, 2)
    team.close()


def test_a_verifier_that_hangs_on_everything_the_second_time_does_not_end_the_run(tmp_path: Path) -> None:
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ada", "eve"))}
    settings = recipe(agents, method="commons")
    calls = Counter[str]()

    def forgetful(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float | None]:
        calls["batches"] += 1
        scores = short_answers(prompts, completions)
        return [None] * len(scores) if calls["batches"] > 2 else list(scores)

    team = build_team(parse_recipe(settings), reward_funcs=[forgetful])  # type: ignore[list-item]
    record = train_step(team, 1)
    assert calls["batches"] == 2 + 2
    assert record.rejected == {"reward_unconfirmed": 2 * 16}
    team.close()
