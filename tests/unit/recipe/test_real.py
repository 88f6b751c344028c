"""The recipes for real models: what their examples say, and that they show nothing that is tested."""

import re
from pathlib import Path

import pytest

from hacrl import tasks
from hacrl.analysis.compare.suite import load_suite
from hacrl.recipe import load_recipe
from hacrl.rewards.answers import numeric
from hacrl.tasks.word_problems import OPERATIONS
from helpers_docs import ROOT

RECIPES = [
    "recipes/real.yaml",
    "recipes/experiments/real-equations.yaml",
    "recipes/experiments/real-reasoning.yaml",
]
PLANS = ["real.yaml", "real-worked.yaml"]


@pytest.mark.parametrize("path", RECIPES)
def test_examples_are_right_and_not_of_the_test(path):
    recipe = load_recipe(ROOT / path)
    task = tasks.load(recipe.task.name, **recipe.task.settings)
    asked = {prompt.text for prompt in task.test}
    for agent in recipe.agents:
        *solved, last = agent.prompt_template.split("\n\n")
        assert last == "Q: {prompt}\nA:"
        for example in solved:
            question, answer = re.fullmatch(r"Q: (.*)\nA: (.*)", example).groups()
            assert question not in asked
            for left, sign, right, result in re.findall(r"(\d+) (\S) (\d+) = (\d+)", answer):
                assert OPERATIONS[sign](int(left), int(right)) == int(result)
                final = result
            assert numeric(answer, final) == 1.0


@pytest.mark.parametrize("name", PLANS)
def test_plans_have_seeds_and_prompts_of_their_own_and_a_kind_nobody_trains_on(name):
    suite = load_suite(ROOT / "recipes" / "experiments" / name)
    assert min(suite.file.seeds) >= 300
    assert len(suite.file.seeds) >= 3
    for setting in suite.file.settings:
        recipes = suite.plan(setting, Path()).recipes
        assert {"gspo", "hacpo", "commons", "pool_2_prompts"} <= set(recipes)
        assert [label for label, recipe in recipes.items() if recipe.evaluation.before] == ["gspo"]
        for recipe in recipes.values():
            assert recipe.task.settings["seed"] == 1000
            trained = set(recipe.task.settings["kinds"])
            assert recipe.evaluation.tasks
            assert all(not trained & set(task.settings["kinds"]) for task in recipe.evaluation.tasks)
            assert recipe.evaluation.prompts >= 300
