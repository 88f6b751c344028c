"""Plans: the recipe of each method, and continuing an earlier comparison."""

import json
from dataclasses import replace

import pytest

from hacrl.analysis.compare.faults import Faults
from hacrl.analysis.compare.plan import make_plan, write_plan
from hacrl.recipe import RecipeError
from helpers_compare import finish, plan


def make(folder, methods="hacpo,gspo", overrides=(), own=(), seeds=(0, 1), **changes):
    recipe = {
        "agents": [{"name": name, "model": name} for name in ("ada", "bob", "eve")],
        "task": "digits",
        "method": {"name": "hacpo", "delta": 0.7, "without": ["exponent"]},
        **changes,
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    return make_plan(path, overrides, methods.split(","), own, seeds, folder / "out")


def test_only_method_seed_and_directory_differ_between_runs(tmp_path):
    planned = make(tmp_path, "hacpo,naive,grpo", seeds=(3, 4))
    runs = planned.runs()
    assert [run.name for run in runs] == [
        f"{method}/seed_{seed}" for seed in (3, 4) for method in ("hacpo", "naive", "grpo")
    ]
    assert [run.recipe.seed for run in runs] == [3, 3, 3, 4, 4, 4]
    assert runs[-1].directory.path == tmp_path / "out" / "runs" / "grpo" / "seed_4"
    others = [{k: v for k, v in run.recipe.resolved().items() if k not in ("method", "seed")} for run in runs]
    assert all(other == others[0] for other in others)


def test_the_recipes_settings_stay_with_their_method(tmp_path):
    recipes = make(tmp_path, "hacpo,hacpo-no_clipping,gspo").recipes
    assert (recipes["hacpo"].method.delta, recipes["hacpo"].method.without) == (0.7, ())
    ablation = recipes["hacpo-no_clipping"].method
    assert (ablation.delta, ablation.without) == (0.7, ("clipping",))
    assert recipes["gspo"].method.model_dump() == {
        "name": "gspo",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "epochs": 1,
        "prompt_factor": 1,
    }


def test_labels_and_settings_of_one_method_alone(tmp_path):
    planned = make(
        tmp_path,
        "gspo,wide=hacpo",
        overrides=["steps=7"],
        own=["wide:method.delta=0.9", "wide:agents.bob.learning_rate=1e-3"],
    )
    wide, gspo = planned.recipes["wide"], planned.recipes["gspo"]
    assert (wide.method.name, wide.method.delta) == ("hacpo", 0.9)
    assert (wide.learning_rate_of("bob"), gspo.learning_rate_of("bob")) == (1e-3, None)
    assert wide.steps == gspo.steps == 7


def test_methods_that_share_nothing_drop_the_topology(tmp_path):
    star = {"topology": "star", "hub": "bob"}
    recipes = make(tmp_path, "hacpo,gspo,gspo_x2", exchange=star).recipes
    assert (recipes["hacpo"].exchange.topology, recipes["hacpo"].exchange.hub) == ("star", "bob")
    assert recipes["hacpo"].topology()["ada"] == ("bob",)
    for method in ("gspo", "gspo_x2"):
        assert recipes[method].exchange.topology == "everybody"
        assert recipes[method].topology() == {"ada": (), "bob": (), "eve": ()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "hacpo"}, "two or more different"),
        ({"methods": "gspo,gspo"}, "two or more different"),
        ({"methods": "gspo,../x=hacpo"}, "cannot name a directory"),
        ({"own": ["grpo:steps=3"]}, "METHOD one of hacpo, gspo"),
        ({"own": ["steps=3"]}, "METHOD:KEY=VALUE"),
        ({"own": ["gspo:agents.ada.model=other"]}, "agents must be the same"),
        ({"own": ["gspo:task=sort"]}, "task must be the same"),
        ({"own": ["gspo:evaluation.prompts=3"]}, "evaluation must be the same"),
    ],
)
def test_mistakes_are_reported_before_anything_runs(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **options)


def test_one_method_may_measure_where_all_agents_begin(tmp_path):
    own = ["hacpo:evaluation.before=false"]
    recipes = make(tmp_path, "hacpo,gspo", own=own).recipes
    assert (recipes["hacpo"].evaluation.before, recipes["gspo"].evaluation.before) == (False, True)


def test_an_unknown_method_is_named_with_the_nearest(tmp_path):
    with pytest.raises(RecipeError, match=r"with method gpso.*\n.*did you mean 'gspo'"):
        make(tmp_path, "hacpo,gpso")


def test_other_settings_for_the_same_directory_are_refused_with_the_differences(tmp_path):
    write_plan(make(tmp_path), "abc")
    kept = (tmp_path / "out" / "comparison.json").read_bytes()
    changes = ["optimiser.learning_rate=0.5", "evaluation.prompts=9", "steps=3"]
    with pytest.raises(ValueError, match="other settings") as refused:
        write_plan(make(tmp_path, overrides=changes), "abc")
    for line in (
        "hacpo: optimiser.learning_rate: null before, 0.5 now",
        "gspo: evaluation.prompts: 256 before, 9 now",
        "gspo: steps: 58 before, 3 now",
    ):
        assert line in str(refused.value)
    assert (tmp_path / "out" / "comparison.json").read_bytes() == kept


def test_other_faults_for_the_same_directory_are_refused(tmp_path):
    planned = make(tmp_path)
    write_plan(planned, "abc")
    faulty = replace(planned, faults={"hacpo": Faults(inverted=("ada",))})
    with pytest.raises(ValueError, match=r"hacpo: faults: none before, .*'inverted'.*'ada'.* now"):
        write_plan(faulty, "abc")
    elsewhere = replace(faulty, out=tmp_path / "faulty")
    assert write_plan(elsewhere, "abc") == write_plan(elsewhere, "abc") == ["abc"]
    with pytest.raises(ValueError, match=r"hacpo: faults: .*'ada'.* before, none now"):
        write_plan(replace(planned, out=tmp_path / "faulty"), "abc")


def test_methods_and_seeds_may_be_added_and_commits_are_remembered(tmp_path):
    write_plan(plan(tmp_path, ["hacpo", "gspo"]), "abc")
    more = plan(tmp_path, ["gspo", "naive"], seeds=3)
    assert write_plan(more, "def") == ["abc", "def"]
    for run in more.runs():
        finish(more, run.method, run.seed, {"ada": [1.0], "bob": [0.0]})
    assert write_plan(more, "ghi") == ["abc", "def"], "nothing is left to run with the new commit"
    kept = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert sorted(kept["recipes"]) == ["gspo", "hacpo", "naive"]


def test_runs_of_a_comparison_share_no_pool(tmp_path):
    with pytest.raises(
        ValueError, match=r"exchange.pool: the runs of a comparison would learn from each other"
    ):
        make(tmp_path, "hacpo,naive", exchange={"pool": "shared"})
