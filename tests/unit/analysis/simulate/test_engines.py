"""Engines beside training and in turns with it: generation, new weights, scoring, memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hacrl.analysis.doctor import examine
from hacrl.analysis.doctor.models import ModelFacts
from hacrl.analysis.doctor.turns import turns
from hacrl.analysis.simulate.engines import MOST_ROWS, EnginePlan, engine_cost, engine_plans, generating
from hacrl.analysis.simulate.forecast import StepCost, forecast
from hacrl.analysis.simulate.hardware import ENGINE_STEP, GPUS
from hacrl.analysis.simulate.work import Lengths, Workload, forward_flops, workload
from hacrl.cli.app import app
from hacrl.recipe import Recipe, parse_recipe

H100 = GPUS["h100"]
LENGTHS = Lengths(prompt=200, response=1000, longest=4096)
MODELS = {"a": "Qwen/Qwen3-1.7B-Base", "b": "Qwen/Qwen3-4B-Base"}


def recipe(ranks: int = 4, **changes: Any) -> Recipe:
    agents = [
        {"name": name, "model": model, "resources": {"gpus": 1, "ranks": ranks}}
        for name, model in MODELS.items()
    ]
    base = {"agents": agents, "task": "math", "runtime": "ray", "sampling": {"max_new_tokens": 4096}}
    base["updates"] = {"gradient_checkpointing": True}
    return parse_recipe(base | {"max_prompt_tokens": 1024} | changes)


def load_of(name: str = "b", **changes: Any) -> Workload:
    return replace(workload(recipe(), name, LENGTHS, 2), **changes)


@pytest.fixture(scope="module")
def facts() -> dict[str, ModelFacts]:
    return {plan.name: plan.facts for plan in examine(recipe()).agents if plan.facts}


def plan(**changes: Any) -> EnginePlan:
    return replace(EnginePlan(4, 1, MOST_ROWS, 0.0, 0, in_turns=False), **changes)


def test_an_engine_steps_once_per_token_of_its_longest_response_if_all_fit(
    facts: dict[str, ModelFacts],
) -> None:
    """128 prompts with 8 responses on 4 engines: 256 each."""
    work, exchanged = generating(facts["b"], load_of(), plan())
    assert work.passes == pytest.approx(4096 + 1)
    assert exchanged == 0.0
    tokens = 256 * 1000
    attended = 32 * 200 * 200 / 2 + tokens * 700
    assert work.flops == forward_flops(facts["b"], 32 * 200 + tokens, predicted=tokens, attended=attended)


def test_responses_that_do_not_fit_follow_as_others_end(facts: dict[str, ModelFacts]) -> None:
    """A quarter of the rows: four times as many steps of the mean length, once the rest of the longest."""
    whole, _ = generating(facts["b"], load_of(), plan())
    quarter, _ = generating(facts["b"], load_of(), plan(rows=64))
    assert quarter.passes == pytest.approx(whole.passes + 3 * 1000)
    assert quarter.flops == whole.flops
    assert quarter.tokens == whole.tokens == 256 * 1000


def test_a_split_engine_shares_the_work_and_exchanges_sums(facts: dict[str, ModelFacts]) -> None:
    one, _ = generating(facts["b"], load_of(responses=1024), plan(devices=2, split=1))
    two, exchanged = generating(facts["b"], load_of(responses=512, prompts=64), plan(devices=2, split=2))
    assert two.flops == pytest.approx(one.flops / 2)
    tokens = 64 * 200 + 512 * 1000
    assert exchanged == pytest.approx(2 * 0.5 * 2 * facts["b"].layers * tokens * facts["b"].hidden * 2)


def test_new_weights_cross_the_links_and_the_training_state_the_bus(facts: dict[str, ModelFacts]) -> None:
    here = engine_cost(facts["b"], load_of(), plan(), H100, H100.link)
    alone = engine_cost(facts["b"], load_of(), plan(devices=1), H100, H100.link)
    moved = engine_cost(facts["b"], load_of(), plan(moved=H100.host), H100, H100.link)
    weights = 2 * facts["b"].parameters
    assert alone.sync == pytest.approx(6 * weights * H100.update.per_byte)
    assert here.sync == pytest.approx(alone.sync + 0.75 * weights / H100.link)
    assert moved.sync == pytest.approx(here.sync + 1.0)
    assert moved.generate == here.generate
    unknown = replace(H100, engine=None)
    with pytest.raises(ValueError, match="has not been measured"):
        engine_cost(facts["b"], load_of(), plan(), unknown, H100.link)


def test_beside_training_the_cache_is_what_is_left_and_the_recipes_is_taken_as_it_is() -> None:
    found = examine(recipe(), gpu_memory=80 * 10**9)
    plans = engine_plans(found, "beside")
    for agent in found.agents:
        assert plans[agent.name].memory == pytest.approx(0.9 * 80e9, rel=1e-6)
        assert (plans[agent.name].devices, plans[agent.name].in_turns) == (4, False)
    assert plans["a"].rows > plans["b"].rows > 8
    assert engine_plans(found, "recipe") == {}
    crowded = examine(recipe(ranks=1), gpu_memory=80 * 10**9)
    with pytest.raises(ValueError, match=r"agent b: beside .* no room for a response of full length"):
        engine_plans(crowded, "beside")
    own = recipe().resolved()
    own["agents"][0] |= {"engine": {"name": "vllm", "cache_gigabytes": 4.0}, "resources": {"gpus": 1.0}}
    (planned,) = engine_plans(examine(Recipe.model_validate(own), gpu_memory=80 * 10**9), "recipe").values()
    row = (1024 + 4096) * 2 * 28 * 8 * 128 * 2
    assert planned.rows == 4 * 10**9 // row


def test_in_turns_every_agent_has_all_gpus_and_the_others_wait(facts: dict[str, ModelFacts]) -> None:
    found = examine(recipe(), gpu_memory=80 * 10**9)
    plans = engine_plans(found, "turns")
    together = {turn.name: turn for turn in turns(found)}
    for name, planned in plans.items():
        assert (planned.devices, planned.in_turns) == (8, True)
        assert planned.moved == 2 * together[name].offloaded / 8
        assert planned.memory <= 0.9 * 80e9
    beside = step(facts, engine_plans(found, "beside"))
    turned = step(facts, plans)
    builtin = step(facts, {})
    assert (beside.parallel, turned.parallel) == (True, False)
    assert turned.sample == pytest.approx(
        sum(a.sample + a.gather + a.sync + a.score for a in turned.agents.values())
    )
    assert turned.agents["b"].update < beside.agents["b"].update == builtin.agents["b"].update
    roomy = step(facts, {"b": plan()}).agents["b"]
    assert 4096 * ENGINE_STEP < roomy.sample < builtin.agents["b"].sample, "it does not launch every layer"
    assert roomy.sample < beside.agents["b"].sample, "more rows at once"


def step(facts: dict[str, ModelFacts], plans: dict[str, EnginePlan], **changes: Any) -> StepCost:
    return forecast(recipe(**changes), facts, LENGTHS, H100, "math", plans)


def test_verifiers_work_while_responses_are_drawn_ahead(facts: dict[str, ModelFacts]) -> None:
    plain, ahead = step(facts, {}), step(facts, {}, sample_ahead={})
    assert plain.verify < plain.sample
    assert plain.total - ahead.total == pytest.approx(plain.verify)
    assert replace(ahead, verify=ahead.sample + 5.0).loop == pytest.approx(ahead.exchange + 5.0)


@pytest.mark.parametrize(
    ("place", "shown"), [("beside", "vLLM, beside training"), ("turns", "vLLM, in turns with training")]
)
def test_the_command_shows_engines(place: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe().resolved() | {"method": "hacpo"}))
    result = CliRunner().invoke(app, ["simulate", str(path), "--engines", place, "--markdown"])
    assert result.exit_code == 0, result.output
    assert shown in result.stdout
    wrong = CliRunner().invoke(app, ["simulate", str(path), "--engines", "both"])
    assert "--engines 'both': choose one of recipe, beside, turns" in wrong.stderr
