"""What every registered method has to fulfil. A method is tested here by being registered."""

import dataclasses
import math
import re
from pathlib import Path

import pytest
import torch

from hacrl.agents.rendering import Rendering
from hacrl.agents.updater import source_data
from hacrl.methods import Method
from hacrl.recipe import parse_recipe
from hacrl.recipe.keys import all_keys
from hacrl.recipe.method import registered_methods
from hacrl.sharing import Learner, Reencoder, arrange, build_batches
from hacrl.symptoms import with_own
from hacrl.types import Prompt
from helpers_methods import ANSWERS, view
from helpers_sharing import char_level

ROOT = Path(__file__).parents[3]
METHODS = registered_methods()
PROMPTS = {name: Prompt(name, f"{name}=") for name in ("p0", "p1")}
THREE = {**ANSWERS, "c": {"p0": [("x", 0.0)] * 4, "p1": [("5", 1.0), ("05", 1.0), ("6", 0.0), ("6", 0.0)]}}
UNEQUAL = {
    "a": {"p0": [("7", 1.0), ("8", 0.0)], "p1": [("x", None), ("y", None)]},
    "b": {"p0": [("7", 1.0), ("9", None), ("9", 0.0)], "p1": [("5", 1.0)]},
    "c": {"p0": [("q", None)]},
}
"""Groups of one to three responses or none at all, and some without a reward."""
EXTREME = {
    "a": {"p0": [("7", 1e6), ("8", -1e6)] * 2, "p1": [("5", 1e-9), ("6", 0.0)] * 2},
    "b": {"p0": [("7", -1e6)] * 4, "p1": [("5", 1e6), ("6", 1.0), ("6", 0.0), ("6", 0.0)]},
    "c": {"p0": [("7", 0.0)] * 4, "p1": [("5", 1.0)] * 4},
}


def method(name: str) -> Method:
    made = METHODS[name](name=name)
    assert isinstance(made, Method)
    return made


def terms(name, seen):
    return method(name).loss_terms(seen)


def batch(name, seen):
    tokens = Reencoder(Learner(seen.learner, Rendering(char_level())), PROMPTS)
    return build_batches(seen.table, tokens, terms(name, seen))


def losses(found, factor=1.1):
    """Of every row, at log-probs that put some of the ratios outside every clip."""
    everything = []
    for group in found.update_groups:
        for number, rows in enumerate(group.mini_batches):
            data = source_data(rows, torch.device("cpu"))
            if group.objective.__class__.__name__ == "PpoObjective":  # as a critic would have it
                data = dataclasses.replace(data, token_advantages=torch.ones_like(data.source_logps))
            mask = torch.arange(data.source_logps.shape[1]) < torch.tensor(
                [[len(row.response_ids)] for row in rows]
            )
            everything.append(group.objective(data.source_logps * factor, mask, data, number))
    return torch.cat(everything) if everything else torch.zeros(0)


def of_agents(agents, name):
    made = [{"name": agent, "model": "m"} for agent in agents]
    return parse_recipe({"agents": made, "task": "digits", "method": name})


@pytest.mark.parametrize("name", METHODS)
def test_one_agent_trains_as_with_gspo_or_the_method_says_why_not(name):
    seen, gspo = view("a", agents="a"), METHODS["gspo"]()
    alone, plain = batch(name, seen), batch("gspo", seen)
    updates = [group.mini_batches for group in alone.update_groups if any(group.mini_batches)]
    first = dataclasses.replace(alone, update_groups=alone.update_groups[:1])
    same = updates[0] == plain.update_groups[0].mini_batches and losses(first).equal(losses(plain))
    assert losses(plain).abs().sum() > 0.1
    assert same == (not method(name).differs_alone)
    if same and method(name).updates(2, 1, 0) == gspo.updates(2, 1, 0):
        assert alone.mini_batches == plain.mini_batches


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("learner", "abc")
def test_three_agents_make_at_most_the_updates_the_recipe_counts_on(name, learner):
    recipe = of_agents("abc", name)
    made = len(batch(name, view(learner, agents="abc", answers=THREE)).mini_batches)
    factor = recipe.rollout_factor  # the view has as many samples as without it
    assert 1 <= made * factor <= recipe.updates_per_step(learner) * factor
    assert recipe.method.shares == any(recipe.topology().values())


@pytest.mark.parametrize("name", METHODS)
def test_permuting_the_agents_changes_nothing(name):
    first, second = (batch(name, view("a", agents=order, answers=THREE)) for order in ("abc", "cba"))
    assert first.mini_batches == second.mini_batches


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("answers", [UNEQUAL, EXTREME], ids=["unequal", "extreme"])
@pytest.mark.parametrize("learner", "abc")
def test_odd_groups_and_extreme_rewards_and_ratios_give_finite_losses(name, answers, learner):
    seen = view(learner, agents="abc", answers=answers)
    for term in terms(name, seen):
        assert not (term.mask & ~seen.table.mask).any()
        assert term.advantages[term.mask].isfinite().all()
        assert term.coefficients.isfinite().all()
    found = batch(name, seen)
    for factor in (0.0, 1.0, 100.0, 1e6):
        assert losses(found, factor).isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_nobody_responded(name):
    empty = dataclasses.replace(view("a", agents="ab"), table=arrange(1, [], list("ab"), ["p0", "p1"]))
    assert not any(term.mask.any() for term in terms(name, empty))
    assert not any(batch(name, empty).mini_batches)


@pytest.mark.parametrize("name", METHODS)
def test_prompts_are_shared_out_completely_and_by_name(name):
    made, prompts = method(name), [Prompt(f"p{n}", "?") for n in range(method(name).prompts_drawn(4, 3))]
    for order in (["a", "b", "c"], ["c", "a", "b"]):
        assigned = made.assign(prompts, order)
        assert {agent: len(own) for agent, own in assigned.items()} == dict.fromkeys("abc", 4)
        assert {prompt.id for own in assigned.values() for prompt in own} == {p.id for p in prompts}
        assert assigned == made.assign(prompts, ["b", "c", "a"])


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_explained_and_advice_names_only_keys_of_the_recipe(name):
    made = method(name)
    assert all(field.description for key, field in type(made).model_fields.items())
    own = {f"method.{key}" for key in type(made).model_fields}
    known = {key.path for key in all_keys() if not key.path.startswith("method.")} | own
    sections = {key.split(".")[0] for key in known if "." in key}
    symptoms = with_own(made.symptoms)
    texts = [symptom.change for symptom in symptoms.values()]
    texts += [str(problem) for problem in made.advice(of_agents("abcdefgh", name))]
    for text in texts:
        named = re.findall(r"\b\w+(?:\.\w+)+\b", text)
        assert {key for key in named if key.split(".")[0] in sections} <= known, text
    for symptom in symptoms.values():
        assert symptom.message("a", symptom.bound).startswith("a: ")
        assert not symptom.crossed(math.nan)


@pytest.mark.parametrize("name", METHODS)
def test_metrics_are_finite_numbers(name):
    seen, made = view("a", agents="abc", answers=THREE), method(name)
    values = made.metrics(seen, made.loss_terms(seen)) | made.pair_metrics(seen, "b")
    assert all(math.isfinite(value) for value in values.values())
    assert {metric for metric, _ in made.shown.values()} <= values.keys() | {"inside"}
    baseline = made.baseline(seen)
    assert baseline is None or (baseline.shape == (2,) and baseline.isfinite().all())


@pytest.mark.parametrize("name", METHODS)
def test_the_method_survives_a_recipe_on_disk(name):
    recipe = of_agents("ab", name)
    assert parse_recipe(recipe.resolved()) == recipe
    assert hash(recipe.method) == hash(parse_recipe(recipe.resolved()).method)


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
        ("mopd", 6),
        ("commons", 18),
        ("hacpo", 6),
        ("gspo_x2", 4),
        ("rft", 8),
    ],
)
def test_updates_of_a_step(name, updates):
    assert of_agents("abc", name).updates_per_step("a") == updates


def test_every_method_is_in_the_table_of_methods():
    page = (ROOT / "docs" / "methods.md").read_text()
    first_cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(METHODS)
