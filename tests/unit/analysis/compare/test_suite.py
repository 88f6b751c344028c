"""Plans of experiments: what they say, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from hacrl.analysis.compare.faults import Faults
from hacrl.analysis.compare.suite import load_suite
from hacrl.recipe import RecipeError
from helpers_suite import PLAN, suite, write_suite

ROOT = Path(__file__).parents[4]


def test_a_setting_lays_its_recipe_and_its_methods_over_what_is_common(tmp_path):
    plan = suite(tmp_path).plan("short", tmp_path / "out")
    assert list(plan.recipes) == ["gspo", "gspo_x2", "hacpo", "wide", "one_way"]
    wide, hacpo, one_way = (plan.recipes[label] for label in ("wide", "hacpo", "one_way"))
    assert (wide.steps, wide.evaluation.every, wide.evaluation.prompts) == (3, 2, 8)
    assert (wide.method.name, wide.method.delta, hacpo.method.delta) == ("hacpo", 0.5, 0.2)
    assert (wide.optimiser.learning_rate, hacpo.optimiser.learning_rate) == (1e-5, None)
    assert one_way.topology() == {"ada": (), "bob": ("ada",)}
    assert plan.runs()[0].name == "short/gspo/seed_0"
    assert plan.runs()[0].directory.path == tmp_path / "out" / "short" / "runs" / "gspo" / "seed_0"


def test_agents_are_measured_before_training_by_the_first_method_alone(tmp_path):
    recipes = suite(tmp_path).plan("pair", tmp_path).recipes
    assert [recipe.evaluation.before for recipe in recipes.values()] == [True, False, False]


def test_tuned_values_belong_to_one_method_of_one_setting(tmp_path):
    (tmp_path / "plan.tuned.yaml").write_text("pair: {hacpo: {optimiser.learning_rate: 0.25}}")
    read = suite(tmp_path)
    assert read.plan("pair", tmp_path).recipes["hacpo"].optimiser.learning_rate == 0.25
    assert read.plan("pair", tmp_path).recipes["gspo"].optimiser.learning_rate is None
    assert read.plan("short", tmp_path).recipes["hacpo"].optimiser.learning_rate is None


def test_a_tuned_file_of_another_form_is_refused(tmp_path):
    (tmp_path / "plan.tuned.yaml").write_text("pair: {hacpo: 0.25}")
    with pytest.raises(RecipeError, match=r"tuned.yaml.*\n.*pair.hacpo: .*dictionary, got 0.25"):
        suite(tmp_path)


def test_nested_keys_of_a_method_change_nothing_beside_them(tmp_path):
    common = PLAN["common"] | {"exchange": {"length_norm": "bytes"}}
    methods = PLAN["methods"] | {"ring": {"method": "hacpo", "exchange": {"topology": "ring"}}}
    exchange = (
        suite(tmp_path, common=common, methods=methods).plan("short", tmp_path).recipes["ring"].exchange
    )
    assert (exchange.topology, exchange.length_norm) == ("ring", "bytes")


def test_faults_of_a_setting_are_those_of_every_method_without_its_own(tmp_path):
    settings = {
        "pair": PLAN["settings"]["pair"],
        "short": {
            "recipe": "short.yaml",
            "faults": {"inverted": ["bob"]},
            "controls": {"both": {"method": "hacpo", "faults": {"shuffled": ["ada", "bob"]}}},
        },
    }
    read = suite(tmp_path, settings=settings)
    assert not read.plan("pair", tmp_path).faults
    plan = read.plan("short", tmp_path)
    assert plan.run("both", 0).faults == Faults(shuffled=("ada", "bob"))
    for method in ("gspo", "hacpo"):
        assert plan.run(method, 0).faults == Faults(inverted=("bob",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seedz": [1]}, r"seedz: unknown key; did you mean 'seeds'\?"),
        ({"seeds": [1, 1]}, "seeds: .*1 is listed twice"),
        ({"seeds": [1]}, "seeds: .*two or more"),
        ({"references": []}, "references: .*at least one"),
        ({"seeds": ["one"]}, "seeds.0: .*integer, got 'one'"),
        ({"references": ["gpso"]}, r"references: expected one of .* got 'gpso'; did you mean 'gspo'\?"),
        ({"settings": {"pair": {"recipe": "pair.yaml", "methods": ["x"]}}}, "settings.pair.methods: .*'x'"),
        ({"settings": {"../pair": {"recipe": "pair.yaml"}}}, "cannot name a directory"),
        ({"settings": {"pair": {"recipe": "none.yaml"}}}, "none.yaml.*\n.*cannot be read"),
        ({"methods": PLAN["methods"] | {"new": "hacpa"}}, "plan.yaml, short with method new(.*\n)+.*hacpo"),
        ({"methods": PLAN["methods"] | {"new": {"method": "gspo", "stepz": 1}}}, "stepz: unknown key"),
        ({"claims": [{"text": "t", "better": "hacpo", "worse": "grpo"}]}, "claims.0: .*'grpo'"),
        (
            {"settings": {"pair": {"recipe": "pair.yaml", "faults": {"inverted": ["bbo"]}}}},
            r"faults.inverted: expected some of the agents \['ada', 'bob'\], got 'bbo'; did you mean 'bob'\?",
        ),
        (
            {"methods": PLAN["methods"] | {"new": {"method": "hacpo", "faults": {"shuffled": ["eve"]}}}},
            "with method new(.*\n)+.*faults.shuffled: .*'eve'",
        ),
        (
            {"methods": PLAN["methods"] | {"new": {"method": "hacpo", "faults": {"shufled": ["ada"]}}}},
            r"faults.shufled: unknown key; did you mean 'shuffled'\?",
        ),
        ({"tuning": {"seeds": [2], "sweeps": {}}}, "tuning.seeds: 2 is a reported seed"),
        (
            {"tuning": {"seeds": [7], "sweeps": {"gspo": {"a": [1, 2]}, "hacpo": {"a": [1]}}}},
            "tuning.sweeps: expected as many trials for every method, but gspo has 2, hacpo has 1",
        ),
        ({"bases": [-1]}, "bases.0: .*got -1"),
        ({"readme": {"settings": ["pair"], "rows": {"x": "gpso"}}}, r"readme.rows: .*did you mean 'gspo'\?"),
        ({"readme": {"settings": ["par"], "rows": {}}}, r"readme.settings: .*did you mean 'pair'\?"),
        (
            {"settings": PLAN["settings"] | {"pair": {"recipe": "pair.yaml", "controls": {"gspo": None}}}},
            "gspo: ",
        ),
    ],
)
def test_mistakes_are_named(tmp_path, changes, message):
    with pytest.raises((RecipeError, ValueError), match=message):
        suite(tmp_path, **changes)


def test_a_missing_key_is_named(tmp_path):
    path = write_suite(tmp_path)
    path.write_text(json.dumps({key: value for key, value in PLAN.items() if key != "methods"}))
    with pytest.raises(RecipeError, match="methods: Field required"):
        load_suite(path)


EXPERIMENTS = ROOT / "recipes" / "experiments"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("plan.yaml", "hacpo"),
        ("claims.yaml", "commons"),
        ("regime.yaml", "hacpo"),
        ("commons.yaml", "commons"),
    ],
)
def test_the_plans_of_the_repository_are_valid(name: str, ours: str):
    found = load_suite(EXPERIMENTS / name)
    assert len(found.file.seeds) >= 5
    for setting in found.file.settings:
        assert {"gspo", ours} <= set(found.plan(setting, Path()).recipes)


def test_claims_are_made_on_seeds_prompts_and_models_of_their_own():
    claims = load_suite(EXPERIMENTS / "claims.yaml")
    assert min(claims.file.seeds) >= 200, "those below have been looked at"
    assert len(set(claims.file.bases)) >= 3
    assert 0 not in claims.file.bases, "development uses the usual toy models"
    for setting in claims.file.settings:
        plan = claims.plan(setting, Path())
        for recipe in plan.recipes.values():
            assert recipe.task.settings["seed"] == 2000
            assert (recipe.evaluation.samples, recipe.evaluation.many) == (8, 64)
            assert recipe.evaluation.curve == "greedy"
        assert plan.runs()[0].recipe.agents[0].model.endswith("@1")
