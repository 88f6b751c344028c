"""The recipes for GPUs: nothing of them is on this machine, and all of it but that is checked."""

import re
from pathlib import Path

import pytest

from hacrl.analysis.doctor import examine, warnings_for
from hacrl.analysis.doctor.advice import device_memory
from hacrl.recipe import load_recipe

RECIPES = sorted((Path(__file__).parents[4] / "recipes" / "paper").glob("*.yaml"))


def test_there_are_the_six_pairs_and_a_group_of_eight():
    sizes = [len(load_recipe(path).agents) for path in RECIPES]
    assert sorted(sizes) == [2, 2, 2, 2, 2, 2, 8]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_fits_the_gpus_it_states(path: Path):
    text = path.read_text()
    assert "Not run on a GPU by us." in text
    stated = re.search(r"on (\d+) GPUs of (\d+) GB", re.sub(r"\s+#?\s*", " ", text))
    assert stated
    gpus, gigabytes = map(int, stated.groups())
    found = examine(load_recipe(path), gigabytes * 10**9)
    assert found.errors == []
    assert sum(agent.gpus * agent.ranks for agent in found.agents) == gpus
    shares = [device.needed / device.available for device in device_memory(found)]
    assert len(shares) == len(found.agents)
    assert 0.5 < max(shares) < 0.9
    assert {warning.key for warning in warnings_for(found)} <= {"optimiser.kl"}


def test_half_of_the_ranks_are_not_enough_for_the_8b_model():
    recipe = load_recipe(
        next(path for path in RECIPES if path.stem == "size-qwen3-4b-8b"), ["agents.1.resources.ranks=2"]
    )
    found = examine(recipe, 80 * 10**9)
    assert [device.needed <= device.available for device in device_memory(found)] == [True, False]
    assert "sampling.max_rows" in {warning.key for warning in warnings_for(found)}
