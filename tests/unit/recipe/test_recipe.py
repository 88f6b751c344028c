from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hacrl.algorithm import HacpoObjective, HacpoParams
from hacrl.analysis.compare.suite import TUNED
from hacrl.methods.grpo import Grpo
from hacrl.methods.hacpo import Hacpo
from hacrl.recipe import (
    LoraSettings,
    Recipe,
    RecipeError,
    RuntimeSettings,
    load_recipe,
    parse_recipe,
    recipe_differences,
)
from hacrl.recipe.keys import all_keys
from hacrl.recipe.method import registered_methods
from hacrl.recipe.reference import reference_table
from helpers_recipes import VALID, Wrong, changed, wrong_recipes

ROOT = Path(__file__).parents[3]
WRONG = wrong_recipes()
METHODS = registered_methods()
SMALLEST = "agents: [{name: a, model: toy:state-a}, {name: b-1.7, model: toy:state-b}]\ntask: digits\n"


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return path

    return write


def message(values: dict[str, Any], *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(values, overrides)
    return str(caught.value)


def test_there_are_at_least_300_wrong_recipes():
    assert len(WRONG) >= 300
    assert len({json.dumps(wrong.values, sort_keys=True) for wrong in WRONG}) >= 300


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.key}-{wrong.what}")
def test_a_wrong_recipe_is_refused_on_one_screen_with_the_key_named(wrong: Wrong, write):
    path = write(yaml.safe_dump(wrong.values))
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert len(text.splitlines()) < 25
    assert max(map(len, text.splitlines())) < 300
    named = [problem.key for problem in caught.value.problems]
    assert any(key == wrong.key or key.startswith(f"{wrong.key}.") for key in named), text


def test_the_recipe_they_are_made_from_is_right():
    recipe = parse_recipe(VALID)
    assert recipe.agents[0].lora == LoraSettings(rank=8, alpha=16.0, target_modules=("q_proj", "v_proj"))
    assert recipe.optimiser.betas == (0.9, 0.98)
    assert recipe.task.settings == {"train": 300}
    assert recipe.evaluation.tasks[0].name == "reverse"


@pytest.mark.parametrize("values", [VALID, yaml.safe_load(SMALLEST), changed(method="hacpo-no_exponent")])
def test_resolved_reads_back_as_the_same_recipe(values: dict[str, Any]):
    recipe = parse_recipe(values)
    assert Recipe.model_validate(json.loads(json.dumps(recipe.resolved()))) == recipe


def test_defaults_are_the_papers():
    recipe = parse_recipe(yaml.safe_load(SMALLEST))
    assert (recipe.steps, recipe.prompts_per_step, recipe.samples_per_prompt) == (58, 128, 8)
    assert recipe.optimiser.kl == 0.001


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_name_alone_gives_its_defaults(name: str):
    recipe = parse_recipe({**yaml.safe_load(SMALLEST), "method": name})
    assert recipe.method == METHODS[name](name=name)
    assert recipe.method.rollout_factor(2) == (2 if name.endswith(("_x2", "_copies")) else 1)


def test_ablations_by_name_and_by_list():
    by_name = parse_recipe(changed(method="hacpo-no_exponent-no_stepwise"))
    by_list = parse_recipe(changed(method={"without": ["exponent", "stepwise"]}))
    assert by_name == by_list
    assert by_name.method == Hacpo(without=("exponent", "stepwise"))
    assert by_name.method.label == "hacpo-no_exponent-no_stepwise"


def test_settings_reach_the_method():
    method = parse_recipe(changed(method={"name": "hacpo", "delta": 0.5, "alpha": 3})).method
    assert method.objective == HacpoObjective(HacpoParams(delta=0.5, alpha=3.0))


def test_updates_and_samples_of_every_agent():
    star = parse_recipe(VALID)
    assert star.topology() == {"small": ("large",), "large": ("small", "third"), "third": ("large",)}
    assert [star.updates_per_step(name) for name in ("small", "large", "third")] == [4, 6, 4]
    assert [star.samples_of(name) for name in ("small", "large")] == [4, 8]
    assert [star.learning_rate_of(name) for name in ("small", "large")] == [1e-5, 2e-6]
    alone = parse_recipe(changed(method="gspo_x2", exchange={}))
    assert alone.updates_per_step("large") == 4
    assert alone.samples_of("small") == 8


def test_a_recipe_is_read_without_transformers_and_help_without_torch():
    code = "import sys, hacrl.recipe, hacrl.cli; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    code = "import sys, hacrl.methods; print({'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- suggestions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (changed(method="sapo"), "method: expected "),
        (changed(method="sapo"), "got 'sapo'; it is called 'swarm' now"),
        (changed(method={"name": "sapo"}), "got 'sapo'; it is called 'swarm' now"),
        (
            changed(agents__0__model="nursery:state-a"),
            "agents.0.model: it is called 'toy:state-a' now, got 'nursery:state-a'",
        ),
        (changed(exchange__shuffled=["large"]), "exchange.shuffled: unknown key; agents that misreport"),
        (changed(exchange__inverted=["large"]), "see `faults` of a plan in docs/compare.md"),
        (changed(optimiser={"warmup_updates": 3}), "unknown key; set optimiser.warmup_steps, which counts"),
    ],
)
def test_old_names_are_refused_with_the_new_ones(values: dict[str, Any], expected: str):
    assert expected in message(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (changed(stepz=3), "stepz: unknown key; did you mean 'steps'?"),
        (changed(learning_rate=1), "learning_rate: unknown key; did you mean 'optimiser.learning_rate'?"),
        (changed(optimiser={"lr": 1}), "optimiser.lr: unknown key; the keys here are learning_rate, betas"),
        (changed(method="hcpo"), "got 'hcpo'; did you mean 'hacpo'?"),
        (changed(optimiser={"schedule": "Cosin"}), "got 'Cosin'; did you mean 'cosine'?"),
        (changed(exchange__hub="lrge"), "got 'lrge'; did you mean 'large'?"),
        (
            changed(method={"name": "gspo", "delta": 1}),
            "unknown key; the keys here are name, epochs, prompt_factor, clip_low, clip_high",
        ),
        (changed(steps="many"), "steps: expected a whole number, got 'many'"),
        (
            changed(agents__0__device="gpu"),
            "agents.0.device: expected auto, cpu, cuda or cuda:NUMBER, got 'gpu'",
        ),
    ],
)
def test_messages_say_what_to_write_instead(values: dict[str, Any], expected: str):
    assert expected in message(values)


def test_all_mistakes_at_once_ten_shown():
    text = message({"agents": [], **{f"key{number}": 1 for number in range(14)}})
    assert text.startswith("recipe: 16 problems\n")
    assert len(text.splitlines()) == 12
    assert text.endswith("... and 6 more")


def test_long_and_odd_values_and_keys_are_cut():
    assert len(message(changed(steps="x" * 10_000))) < 200
    assert len(message(changed(**{"x" * 10_000: 1}))) < 600
    assert len(message(changed(**{"a\n\x1b[31mb": 1})).splitlines()) == 2
    assert "'<tag>': unknown key" in message(changed(**{"<tag>": 1}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([key.path.replace(".N", ".0") for key in all_keys()]), JSON)
def test_any_value_anywhere_gives_a_recipe_or_a_recipe_error(path: str, value: object):
    values = copy.deepcopy(VALID)
    place: Any = values
    *sections, last = path.split(".")
    for part in sections:
        place = place[int(part)] if part == "0" else place.get(part)
        if not isinstance(place, dict | list):
            return
    place[int(last) if last == "0" else last] = value
    with contextlib.suppress(RecipeError):
        recipe = parse_recipe(values)
        assert Recipe.model_validate(recipe.resolved()) == recipe


PLANS = [
    path
    for path in (ROOT / "recipes").rglob("*.yaml")
    if "\nsettings:" in path.read_text() or path.name.endswith(TUNED)
]
RECIPES = [path for path in (ROOT / "recipes").rglob("*.yaml") if path not in PLANS]


@pytest.mark.parametrize("path", sorted(RECIPES), ids=lambda path: path.name)
def test_every_recipe_of_the_repository_is_valid(path: Path):
    load_recipe(path)


# --- overrides --------------------------------------------------------------------------------------------


def test_overrides_by_dotted_key(write):
    recipe = load_recipe(
        write(SMALLEST),
        [
            "optimiser.learning_rate=3e-4",
            "agents.0.model=some/directory",
            "agents.b-1.7.lora.rank=4",
            "agents.a.device=cpu",
            "method.delta=0.5",
            "task.train=300",
            "exchange.topology=[[a, b-1.7]]",
            "evaluation.tasks=[sort]",
        ],
    )
    assert recipe.optimiser.learning_rate == 3e-4
    assert recipe.agents[0].model == "some/directory"
    assert recipe.agents[0].device == "cpu"
    assert recipe.agents[1].lora == LoraSettings(rank=4)
    assert recipe.method == Hacpo(delta=0.5)
    assert recipe.task.model_dump() == {"name": "digits", "train": 300}
    assert recipe.topology() == {"a": (), "b-1.7": ("a",)}


def test_an_override_keeps_a_bare_method_name(write):
    recipe = load_recipe(write(SMALLEST + "method: grpo\n"), ["method.clip_low=0.1"])
    assert recipe.method == Grpo(clip_low=0.1)


def test_a_later_override_wins_and_values_may_contain_equal_signs(write):
    recipe = load_recipe(write(SMALLEST), ["steps=3", "steps=4", "agents.a.model=x=y"])
    assert (recipe.steps, recipe.agents[0].model) == (4, "x=y")


def test_an_override_of_one_alias_leaves_the_others(write):
    shared = (
        "agents: [{name: a, model: m, lora: &l {rank: 2}}, {name: b, model: m, lora: *l}]\ntask: digits\n"
    )
    recipe = load_recipe(write(shared), ["agents.a.lora.rank=8"])
    assert [agent.lora and agent.lora.rank for agent in recipe.agents] == [8, 2]


def test_parsing_leaves_the_callers_values_alone():
    values = yaml.safe_load(SMALLEST)
    parse_recipe(values, ["agents.a.model=other", "method.delta=0.5"])
    assert values == yaml.safe_load(SMALLEST)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("steps", "'steps' on the command line: expected key=value"),
        ("=3", "'=3' on the command line: expected key=value"),
        ("steps.=3", "expected key=value"),
        ("steps.many=3", "steps is 58, which has no keys"),
        ("agents.c.model=x", "no agent is called 'c'"),
        ("agents.b-17.model=x", "did you mean 'b-1.7'?"),
        ("agents.7.model=x", "agents has the entries 0 to 1, but no '7'"),
        ("steps=[", "line 1"),
        ("steps=many", "steps: expected a whole number, got 'many' (set on the command line)"),
        (
            "agents.b-1.7.modle=x",
            "agents.1.modle: unknown key; did you mean 'model'? (set on the command line)",
        ),
    ],
)
def test_wrong_overrides(override: str, expected: str):
    assert expected in message({**yaml.safe_load(SMALLEST), "steps": 58}, override)


LATE = {**yaml.safe_load(SMALLEST), "exchange": {"asynchronous": {}}, "checkpoint": {"every": 9}}
SHARING = {"hacpo", "hacpo_muted", "naive", "ftis", "commons", "sft_strongest"}
"""Whose peers can be late."""


@pytest.mark.parametrize("method", METHODS)
def test_late_peers_are_refused_where_they_cannot_come_later(method: str):
    shares = parse_recipe({**yaml.safe_load(SMALLEST), "method": method}).method.shares
    if shares and method not in SHARING:
        assert f"exchange.asynchronous: method {method} " in message({**LATE, "method": method})
    else:
        assert not parse_recipe({**LATE, "method": method}).asynchronous  # nobody is late in one process
        assert parse_recipe({**LATE, "method": method, "runtime": "ray"}).asynchronous


def test_late_peers_need_an_update_of_their_own():
    changed = {"method": "commons", "updates": {"mini_batches": 1}}
    assert "updates.mini_batches: expected at least 2 with method commons" in message({**LATE, **changed})


def test_agents_that_meet_in_every_step_cannot_be_asynchronous():
    for every in ("auto", 1):
        changed = {"exchange": {"asynchronous": {"max_staleness": 1}}, "checkpoint": {"every": every}}
        text = message({**yaml.safe_load(SMALLEST), **changed})
        assert f"checkpoint.every: expected more than 1 with exchange.asynchronous, got {every}" in text


# --- differences ------------------------------------------------------------------------------------------


def differences(**changes: Any) -> list[str]:
    return recipe_differences(parse_recipe(VALID).resolved(), parse_recipe(changed(**changes)).resolved())


def test_differences_name_the_key_and_both_values():
    assert differences() == []
    assert differences(seed=4, optimiser__betas=[0.9, 0.99]) == [
        "seed: 3 before, 4 now",
        "optimiser.betas: [0.9, 0.98] before, [0.9, 0.99] now",
    ]
    assert "agents.small.lora.rank: 8 before, not set now" in differences(agents__0__lora=None)
    assert {
        "method.delta_step: 0.02 before, 0.025 now",
        "method.alpha: 2.0 before, 1.0 now",
    } <= set(differences(method={"delta": 0.3}))


def test_a_key_that_an_older_version_did_not_know_is_null():
    now = parse_recipe(yaml.safe_load(SMALLEST)).resolved()
    then = {
        **now,
        "exchange": {key: value for key, value in now["exchange"].items() if key != "asynchronous"},
    }
    assert recipe_differences(then, now) == []
    later = {**now, "exchange": {**now["exchange"], "asynchronous": {"max_staleness": 2}}}
    assert recipe_differences(then, later) == ["exchange.asynchronous.max_staleness: not set before, 2 now"]


def test_a_key_that_an_older_version_did_not_know_is_off():
    now = parse_recipe(yaml.safe_load(SMALLEST)).resolved()
    new = ("top_k", "min_p", "stop", "include_stop")
    then = {**now, "sampling": {key: value for key, value in now["sampling"].items() if key not in new}}
    assert recipe_differences(then, now) == []
    changed = {**now, "sampling": {**now["sampling"], "stop": ["."], "min_p": 0.1}}
    assert recipe_differences(then, changed) == [
        "sampling.min_p: not set before, 0.1 now",
        "sampling.stop: not set before, ['.'] now",
    ]
    waiting = {**now, "exchange": {**now["exchange"], "asynchronous": {"max_staleness": 0}}}
    assert recipe_differences(now, waiting) == ["exchange.asynchronous.max_staleness: not set before, 0 now"]


def test_what_only_looks_at_a_run_or_bounds_its_memory_may_change():
    assert not differences(
        logging={},
        checkpoint={"every": 5},
        evaluation={},
        audit={"every": 5},
        sampling__max_rows=8,
        updates__tokens_per_micro_batch=64,
        updates__gradient_checkpointing=False,
        agents__0__device="auto",
        agents__0__resources={"cpus": 4},
        runtime="local",
        reward__deadline_seconds=1,
    )


def test_a_name_alone_chooses_the_runtime_and_an_agent_on_a_gpu_has_to_ask_for_it():
    assert parse_recipe(changed(runtime="local"), ["runtime.name=ray"]).runtime == RuntimeSettings(name="ray")
    text = message(changed(agents__1__device="cuda"))
    assert "agents.1.resources.gpus: expected more than 0 for cuda, got 0" in text


def test_ranks_are_spread_evenly_over_machines_and_each_has_at_most_one_gpu():
    spread = {"ranks": 4, "gpus": 1, "nodes": 2}
    address = {"name": "ray", "address": "10.0.0.1:6379"}
    assert parse_recipe(changed(agents__1__resources=spread, runtime=address)).agents[1].resources.ranks == 4
    here = {"name": "ray"}
    for resources, problem in (
        (spread, "nodes: a cluster that is started here has 1 machine: set runtime.address, or 1"),
        ({"ranks": 3, "nodes": 2}, "nodes: 3 ranks cannot be spread evenly over 2 machines"),
        ({"ranks": 2, "gpus": 0.5}, "gpus: expected 0 or 1 for each of several ranks, got 0.5"),
    ):
        assert f"agents.1.resources.{problem}" in message(
            changed(agents__1__resources=resources, runtime=here)
        )


def test_devices_are_shared_by_agents_that_can_leave_them():
    text = message(
        changed(
            runtime={"share_devices": True},
            agents__1__engine="vllm",
            agents__1__device="cpu",
            agents__1__lora={"base_bits": 4},
        )
    )
    assert "agents.1.engine: expected builtin, or a server (url), with runtime.share_devices" in text
    assert "agents.1.lora.base_bits: expected null with runtime.share_devices, got 4" in text
    assert "agents.1.lora.base_bits: expected null with engine: vllm, got 4" in text
    text = message(
        changed(runtime="ray", agents__1__resources={"ranks": 2}, agents__1__lora={"base_bits": 4})
    )
    assert "agents.1.lora.base_bits: expected null with several resources.ranks, got 4" in text
    on_ray = {"name": "ray", "address": "10.0.0.1:6379", "share_devices": True}
    valid: dict[str, Any] = {"agents__0__resources": {}, "exchange": {}, "runtime": on_ray}
    assert parse_recipe(changed(**valid, agents__1__resources={"ranks": 4})).runtime.share_devices
    for change, problem in (
        ({"agents__1__resources": {"gpus": 1}}, "agents.1.resources.gpus: expected 0 with"),
        ({"agents__1__resources": {"ranks": 2, "nodes": 2}}, "agents.1.resources.nodes: expected 1 with"),
        (
            {"exchange": {"asynchronous": {}}, "checkpoint": {"every": 2}},
            "exchange.asynchronous: expected null with runtime.share_devices",
        ),
    ):
        assert problem in message(changed(**valid | change))


def test_the_order_of_agents_does_not_matter():
    assert differences(agents=[*reversed(VALID["agents"])]) == []
    gone = differences(agents=[VALID["agents"][0], VALID["agents"][1]])
    assert any(line.startswith("agents.third.name") for line in gone)


def test_a_run_may_be_extended_only_while_its_schedule_is_constant():
    assert differences(steps=70) == ["steps: 7 before, 70 now"]
    old, new = (parse_recipe(changed(optimiser={}, steps=steps)).resolved() for steps in (7, 70))
    assert recipe_differences(old, new) == []


# --- documentation ----------------------------------------------------------------------------------------


def test_the_documentation_lists_every_key():
    assert reference_table() in (ROOT / "docs" / "recipe.md").read_text()
    assert all(key.field.description for key in all_keys())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"method": "ppo"}, "with method ppo: its advantages come from a critic"),
        (
            {"exchange": {"asynchronous": {}}, "checkpoint": {"every": 2}, "runtime": "ray"},
            "with exchange.asynchronous",
        ),
    ],
)
def test_dynamic_sampling_needs_groups_and_synchronous_agents(changes: dict[str, Any], why: str):
    values = {**yaml.safe_load(SMALLEST), "dynamic_sampling": 2, **changes}
    with pytest.raises(RecipeError, match=f"dynamic_sampling: expected 0 {why}"):
        parse_recipe(values)
    parse_recipe({**values, "dynamic_sampling": 0})
