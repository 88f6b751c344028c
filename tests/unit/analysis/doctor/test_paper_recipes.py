"""The recipes for GPUs: nothing of them is on this machine, and all of it but that is checked."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hacrl.analysis.doctor import examine, warnings_for
from hacrl.analysis.doctor.advice import device_memory
from hacrl.analysis.doctor.memory import in_units
from hacrl.analysis.doctor.turns import turns
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


def test_two_4b_models_in_turn_need_what_arithmetic_says():
    """Qwen3-4B: 4.022e9 weights, 36 layers, 8 key-value heads of 128, vocabulary 151,936, hidden 2,560."""
    recipe = load_recipe(RECIPES[0].with_name("state-qwen3-4b.yaml"))
    first, second = turns(examine(recipe, 80 * 10**9))
    assert replace(first, name=second.name) == second
    weights = 4_022_468_096
    kept = first.training - (6 + 4 + 8 + 2 + 2) * weights / 8  # master copy, gradients, moments, reference
    tokens, layer = 8192, 12 * 2560 + 4 * 9728
    assert kept == pytest.approx(tokens * 2 * (36 * 2560 + layer) + 8 * 2**24, rel=0.2)  # and the logits
    assert first.handing_over == pytest.approx(2 * weights / 8 + 2 * weights + 2 * 151_936 * 2560)
    assert first.engine == 2 * weights
    assert first.row == (4096 + 1024) * 2 * 36 * 8 * 128 * 2
    assert first.rows == int((0.9 * 80e9 - first.engine) // first.row)
    assert first.offloaded == pytest.approx(16 * weights)
    assert first.tensor_parallel == 1


def test_an_engine_that_does_not_leave_room_is_split():
    recipe = load_recipe(RECIPES[0].with_name("size-qwen3-4b-8b.yaml"))
    small, large = turns(examine(recipe, 24 * 10**9))
    assert (small.tensor_parallel, large.tensor_parallel) == (2, 4)
    assert large.engine == pytest.approx(16.38e9 / 4, rel=1e-3)
    assert large.rows > 0


def test_agents_that_do_take_turns_have_the_gpus_of_one_of_them():
    """The same two models on the same 8 GPUs, which are divided in the recipe."""
    path = RECIPES[0].with_name("size-qwen3-4b-8b.yaml")
    names = [agent.name for agent in load_recipe(path).agents]
    shared = ["runtime.share_devices=true", *(f"agents.{name}.resources.ranks=8" for name in names)]
    divided, in_turns = (turns(examine(load_recipe(path, changes), 80 * 10**9)) for changes in ([], shared))
    for before, after in zip(divided, in_turns, strict=True):
        assert after.training == pytest.approx(before.training, rel=1e-6)
        assert after.handing_over == before.handing_over


def test_the_page_has_the_numbers_of_every_pair():
    page = (RECIPES[0].parents[2] / "docs" / "paper.md").read_text()
    for path in RECIPES:
        recipe = load_recipe(path)
        if len(recipe.agents) > 2:
            continue
        rows = [line for line in page.splitlines() if line.startswith(f"| `{path.stem}` |")]
        line = rows[-1]  # the first is that of the method's settings
        cells = [cell.strip().removesuffix(" each") for cell in line.split("|")[3:-1]]
        for place, turn in enumerate(turns(examine(recipe, 80 * 10**9))):
            sizes = [turn.training, turn.handing_over, turn.engine, turn.row]
            numbers = [in_units(size).split()[0] for size in sizes] + [str(turn.rows)]
            numbers.append(in_units(turn.offloaded).split()[0])
            assert [cell.split(" / ")[min(place, cell.count("/"))] for cell in cells] == numbers, path.stem


def test_without_a_clusters_gpus_there_are_no_turns():
    recipe = load_recipe(RECIPES[0].with_name("state-qwen3-4b.yaml"), ["runtime.name=local"])
    assert turns(examine(recipe, 80 * 10**9)) == []
