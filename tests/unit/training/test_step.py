"""One step: records that are merged field by field, and peers' rewards that are verified again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from hacrl.recipe import parse_recipe
from hacrl.rewards.scores import Score
from hacrl.runtime import Traffic
from hacrl.sharing import LearnerBatch
from hacrl.training.step import train_step
from hacrl.training.step_metrics import step_metrics
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team, build_team
from hacrl.types import EngineCheck, Prompt
from helpers_sharing import trajectory
from helpers_train import make_agent, recipe, short_answers


def part(agent: str, *prompts: str) -> StepRecord:
    """One agent's record of step 7, with something in every field."""
    check = EngineCheck(-1.0, -1.0, 0.0, rescored=False)
    record = StepRecord(
        7,
        trajectories=(trajectory(agent, step=7),),
        omega=torch.zeros(2, 2),
        prompts=tuple(Prompt(name, name) for name in prompts),
        method_metrics={f"agent/{agent}/gate/accepted": 0.5},
        batches={agent: LearnerBatch((), Counter())},
        reports={agent: []},
        rejected=Counter(reward_differs=2),
        unscorable=Counter(timeout=1),
        fingerprints={agent: f"weights-{agent}"},
        failures={agent: "no"},
        cosines={("x", agent): {"cosine": 0.5}},
        staleness={agent: 1.5},
        dropped=Counter({agent: 3}),
        elapsed=9.0,
        traffic={agent: Traffic(1, 2)},
    )
    record.engine_checks[agent]["p", 0] = check
    record.seconds.update({"verify": 1.25, f"update/{agent}": 2.0})
    return record


def test_every_field_of_a_record_says_how_it_is_merged() -> None:
    assert [each.name for each in fields(StepRecord) if "merge" not in each.metadata] == []


def test_merging_loses_nothing_that_an_agent_recorded() -> None:
    whole = StepRecord.merge(7, [part("a", "p0", "p1"), part("b", "p1", "p2")])
    assert [t.source for t in whole.trajectories] == ["a", "b"]
    assert [prompt.id for prompt in whole.prompts] == ["p0", "p1", "p2"]
    assert whole.rejected == {"reward_differs": 4}
    assert whole.unscorable == {"timeout": 2}
    assert whole.dropped == {"a": 3, "b": 3}
    assert whole.seconds == {"verify": 2.5, "update/a": 2.0, "update/b": 2.0}
    assert whole.engine_checks.keys() == {"a", "b"}
    assert whole.method_metrics.keys() == {"agent/a/gate/accepted", "agent/b/gate/accepted"}
    assert whole.cosines.keys() == {("x", "a"), ("x", "b")}
    for name in ("batches", "reports", "fingerprints", "failures", "staleness", "traffic"):
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
