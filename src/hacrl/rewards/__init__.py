"""Verifiers, reward functions, and the pool of processes that runs slow or untrusted ones."""

from hacrl.rewards.pool import Pool, PoolError
from hacrl.rewards.processes import Limits
from hacrl.rewards.rewarder import Reward, Rewarder
from hacrl.rewards.scores import RewardFunction, Score, TooManyUnscorable
from hacrl.rewards.verifiers import VERIFIERS, Verifier, get_verifier

__all__ = [
    "VERIFIERS",
    "Limits",
    "Pool",
    "PoolError",
    "Reward",
    "RewardFunction",
    "Rewarder",
    "Score",
    "TooManyUnscorable",
    "Verifier",
    "get_verifier",
]
