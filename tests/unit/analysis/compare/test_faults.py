"""A faulty agent misreports its rewards to its peers, and nothing else."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from hacrl.analysis.compare.faults import Faults, faulty_delivery, misreport
from hacrl.recipe import parse_recipe
from hacrl.training.team import Team
from helpers_sharing import trajectory

STEP = [trajectory(agent, "p0", i, reward=float(i % 3 == 0)) for agent in "ab" for i in range(12)] + [
    trajectory("b", "p1", 0, reward=None)
]


def rewards(trajectories, agent):
    return [t.reward for t in trajectories if t.source == agent]


def test_inverted_rewards_are_exchanged():
    delivered = misreport(STEP, inverted=["b"], reward_max=1.0, seed=0)
    assert rewards(delivered, "a") == rewards(STEP, "a")
    assert rewards(delivered, "b") == [None if r is None else 1.0 - r for r in rewards(STEP, "b")]


def test_shuffled_rewards_are_a_permutation():
    delivered = misreport(STEP, shuffled=["b"], reward_max=1.0, seed=0)
    assert rewards(delivered, "a") == rewards(STEP, "a")
    assert rewards(delivered, "b") != rewards(STEP, "b")
    assert Counter(rewards(delivered, "b")) == Counter(rewards(STEP, "b"))
    assert delivered == misreport(STEP, shuffled=["b"], reward_max=1.0, seed=0)
    assert delivered != misreport(STEP, shuffled=["b"], reward_max=1.0, seed=1)
    assert [t.id for t in delivered] == [t.id for t in STEP]


def test_without_faults_everything_is_as_it_was():
    assert misreport(STEP, reward_max=1.0, seed=0) == STEP
    assert Faults().delivery(recipe()) is None


def recipe(seed=7):
    agents = [{"name": name, "model": name} for name in "ab"]
    return parse_recipe({"agents": agents, "task": "digits", "seed": seed})


@pytest.mark.parametrize("kind", ["shuffled", "inverted"])
def test_a_learner_has_the_true_rewards_of_its_own_responses(kind):
    deliver = faulty_delivery(recipe(), **{kind: ["a", "b"]})
    for learner, peer in ("ab", "ba"):
        delivered = deliver(STEP, learner, 3)
        assert rewards(delivered, learner) == rewards(STEP, learner)
        assert rewards(delivered, peer) != rewards(STEP, peer)


def test_every_step_is_shuffled_with_the_teams_own_seed_for_it():
    deliver = Faults(shuffled=("b",)).delivery(recipe())
    team: Any = SimpleNamespace(recipe=recipe())
    assert deliver is not None
    for step in (3, 4):
        seed = Team.seed(team, f"faults/{step}")
        assert deliver(STEP, "a", step) == misreport(STEP, shuffled=["b"], reward_max=1.0, seed=seed)
    assert deliver(STEP, "a", 3) != deliver(STEP, "a", 4)
