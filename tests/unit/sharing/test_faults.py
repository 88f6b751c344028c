"""A faulty agent lies to its peers about its rewards, and about nothing else."""

from collections import Counter

from hacrl.sharing import told
from helpers_sharing import trajectory

STEP = [trajectory(agent, "p0", i, reward=float(i % 3 == 0)) for agent in "ab" for i in range(12)] + [
    trajectory("b", "p1", 0, reward=None)
]


def rewards(trajectories, agent):
    return [t.reward for t in trajectories if t.source == agent]


def test_inverted_rewards_are_exchanged():
    heard = told(STEP, inverted=["b"], reward_max=1.0, seed=0)
    assert rewards(heard, "a") == rewards(STEP, "a")
    assert rewards(heard, "b") == [None if r is None else 1.0 - r for r in rewards(STEP, "b")]


def test_shuffled_rewards_are_the_same_in_other_places():
    heard = told(STEP, shuffled=["b"], reward_max=1.0, seed=0)
    assert rewards(heard, "a") == rewards(STEP, "a")
    assert rewards(heard, "b") != rewards(STEP, "b")
    assert Counter(rewards(heard, "b")) == Counter(rewards(STEP, "b"))
    assert heard == told(STEP, shuffled=["b"], reward_max=1.0, seed=0)
    assert heard != told(STEP, shuffled=["b"], reward_max=1.0, seed=1)
    assert [t.id for t in heard] == [t.id for t in STEP]


def test_without_faults_everything_is_as_it_was():
    assert told(STEP, reward_max=1.0, seed=0) == STEP
