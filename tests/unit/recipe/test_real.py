"""The recipes for real models: what their examples say, and that they show nothing that is tested."""

import re

import pytest

from hacrl import tasks
from hacrl.recipe import load_recipe
from hacrl.rewards.answers import numeric
from hacrl.tasks.word_problems import OPERATIONS
from helpers_docs import ROOT

RECIPES = ["recipes/real.yaml"]


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
