"""What all published methods have in common: alone they are GSPO, and they work for any number of agents."""

import re
from pathlib import Path

import pytest
import torch

from hacrl import methods
from hacrl.agents.rendering import Rendering
from hacrl.agents.updater import source_data
from hacrl.recipe import parse_recipe
from hacrl.recipe.method import METHODS
from hacrl.sharing import Learner, Reencoder, build_batches
from hacrl.types import Prompt
from helpers_methods import ANSWERS, view
from helpers_sharing import char_level

PUBLISHED = ["ftis", "xgrpo", "sgt", "swarm", "luffy", "graft", "sft_strongest", "opd"]
PROMPTS = {name: Prompt(name, f"{name}=") for name in ("p0", "p1")}
THREE = {**ANSWERS, "c": {"p0": [("x", 0.0)] * 4, "p1": [("5", 1.0), ("05", 1.0), ("6", 0.0), ("6", 0.0)]}}


def batch(name, seen):
    tokens = Reencoder(Learner(seen.learner, Rendering(char_level())), PROMPTS)
    return build_batches(seen.table, tokens, getattr(methods, name)().lessons(seen))


def losses(found):
    """Of every row, at log-probs that put some of the ratios outside every clip."""
    everything = []
    for group in found.update_groups:
        for number, rows in enumerate(group.mini_batches):
            data = source_data(rows, torch.device("cpu"))
            mask = torch.arange(data.source_logps.shape[1]) < torch.tensor(
                [[len(row.response_ids)] for row in rows]
            )
            everything.append(group.objective(data.source_logps * 1.1, mask, data, number))
    return torch.cat(everything)


@pytest.mark.parametrize("name", PUBLISHED)
def test_one_agent_has_gspo(name):
    seen = view("a", agents="a")
    alone, plain = batch(name, seen), batch("gspo", seen)
    assert alone.mini_batches == plain.mini_batches
    assert losses(plain).abs().sum() > 0.1
    assert losses(alone).equal(losses(plain))


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("learner", "abc")
def test_three_agents_make_at_most_the_updates_the_recipe_counts_on(name, learner):
    agents = [{"name": agent, "model": "m"} for agent in "abc"]
    recipe = parse_recipe({"agents": agents, "task": "digits", "method": name})
    made = len(batch(name, view(learner, agents="abc", answers=THREE)).mini_batches)
    assert recipe.rollout_factor == 1
    assert recipe.method.shares
    assert 2 <= made <= recipe.updates_per_step(learner)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_order_of_the_agents_changes_nothing(name):
    first, second = (batch(name, view("a", agents=order, answers=THREE)) for order in ("abc", "cba"))
    assert first.mini_batches == second.mini_batches


@pytest.mark.parametrize(
    ("name", "updates"),
    [
        ("ftis", 6),
        ("xgrpo", 2),
        ("sgt", 2),
        ("swarm", 4),
        ("luffy", 2),
        ("graft", 4),
        ("sft_strongest", 6),
        ("opd", 6),
    ],
)
def test_updates_of_a_step(name, updates):
    agents = [{"name": agent, "model": "m"} for agent in "abc"]
    recipe = parse_recipe({"agents": agents, "task": "digits", "method": name})
    assert recipe.updates_per_step("a") == updates
    alone = parse_recipe({"agents": agents[:1], "task": "digits", "method": name})
    assert alone.updates_per_step("a") == 2


def test_every_method_is_in_the_table_of_methods():
    page = (Path(__file__).parents[3] / "docs" / "methods.md").read_text()
    first_cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(METHODS)
