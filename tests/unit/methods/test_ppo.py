"""PPO leaves the comparison to the critic."""

from hacrl.algorithm import CriticParams, PpoObjective
from hacrl.methods.gspo import Gspo
from hacrl.methods.ppo import Ppo
from hacrl.recipe import parse_recipe
from helpers_methods import view
from helpers_recipes import VALID


def test_own_answers_come_with_their_plain_reward():
    seen = view("a")
    (term,) = Ppo().loss_terms(seen)
    assert term.advantages[0].tolist() == [[1.0, 0.0, 1.0, 1.0], [0.0] * 4]
    assert term.mask.equal(seen.own)
    assert term.objective == PpoObjective(0.2, 0.2)
    assert Gspo().critic is None


def test_settings_of_a_recipe_reach_objective_and_critic():
    settings = {"name": "ppo", "clip_high": 0.3, "epochs": 2, "gamma": 0.9, "lam": 0.95, "value_clip": 0.2}
    settings["critic_learning_rate"] = 1e-4
    recipe = parse_recipe({**VALID, "method": settings, "exchange": {}})
    method = recipe.method
    assert method.critic == CriticParams(0.9, 0.95, 0.2, 1e-4)
    (term,) = method.loss_terms(view())
    assert term.passes == 2
    assert term.objective == PpoObjective(0.2, 0.3)
    assert recipe.updates_per_step(recipe.agents[0].name) == 2 * recipe.updates.mini_batches
    assert not any(recipe.topology().values())
