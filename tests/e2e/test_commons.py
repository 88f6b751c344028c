"""Commons on real agents: it teaches what one lacks, believes no liar, and no weight moves too far."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hacrl.algorithm import ImitationObjective
from hacrl.analysis.compare.faults import faulty_delivery
from hacrl.recipe import load_recipe
from hacrl.training.step import train_step
from hacrl.training.step_record import StepRecord
from hacrl.training.team_setup import build_team
from hacrl.training.trainer import train
from helpers_states import saved_tensors

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "hacrl" / "cli" / "demo.yaml"


def imitated(record: StepRecord, learner: str) -> list[tuple[str, str]]:
    """(prompt, source) of every row that the learner imitates in the step."""
    return [
        (row.prompt_id, row.source)
        for group in record.batches[learner].update_groups
        if isinstance(group.objective, ImitationObjective)
        for mini_batch in group.mini_batches
        for row in mini_batch
    ]


@pytest.mark.slow
def test_an_agent_learns_a_skill_that_only_its_peer_has(tmp_path: Path):
    short = ["steps=15", "evaluation.prompts=150", "evaluation.samples=0", "logging.trajectories=false"]

    def adding(method: str) -> tuple[float, float]:
        summary = train(load_recipe(DEMO, [*short, f"method={method}"]), tmp_path / method)
        sorter: dict[str, Any] = summary["agents"]["sorter"]
        before, after = (
            sorter[when]["digits"]["greedy_by_kind"]["add3"]["mean"] for when in ("before", "after")
        )
        return before, after

    before, together = adding("commons")
    _, alone = adding("gspo")
    assert before < 0.05
    assert alone < 0.05
    assert together > before + 0.1


@pytest.mark.parametrize("lie", ["shuffled", "inverted"])
def test_only_right_answers_are_imitated_whatever_a_peer_says(lie: str):
    recipe = load_recipe(DEMO, ["steps=3", "prompts_per_step=16"])
    team = build_team(recipe, deliver=faulty_delivery(recipe, **{lie: ["sorter"]}))
    try:
        record = train_step(team, 1)
    finally:
        team.close()
    right = {
        (t.prompt_id, t.source)
        for t in record.trajectories
        for prompt in record.prompts
        if prompt.id == t.prompt_id and re.fullmatch(prompt.columns["answer"], t.text)
    }
    assert imitated(record, "adder")
    assert set(imitated(record, "adder")) <= right
    assert record.rejected["reward_differs"] > 0
    if lie == "inverted":
        assert {source for _, source in imitated(record, "adder")} == {"adder"}


def test_no_weight_moves_further_than_the_learning_rate_in_each_update(tmp_path):
    recipe = load_recipe(DEMO, ["steps=1", "prompts_per_step=16", "optimiser.warmup_steps=0"])
    team = build_team(recipe)
    try:
        before = {member.name: state_of(member.policy, tmp_path) for member in team.members}
        record = train_step(team, 1)
        for member in team.members:
            updates = len(record.reports[member.name])
            assert updates == recipe.updates_per_step(member.name) == 2 * (1 + 4)
            after = state_of(member.policy, tmp_path)
            moved = max(
                float((after[key] - start).abs().max())
                for key, start in before[member.name].items()
                if key.startswith("weight")
            )
            assert 0 < moved <= updates * recipe.optimiser.learning_rate * 1.01
    finally:
        team.close()


def state_of(policy, folder):
    policy.write_state(folder)
    return saved_tensors(folder)
