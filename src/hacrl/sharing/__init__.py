"""Sharing verified responses: who learns from whom, what a learner receives, its training batch."""

from hacrl.runs.trajectories import read_step, write_step
from hacrl.sharing.batches import (
    LearnerBatch,
    LossTerm,
    UpdateGroup,
    build_batches,
)
from hacrl.sharing.reencode import Learner, LeftOut, Reencoder, own_ending
from hacrl.sharing.table import Reverify, RewardTable, arrange, collect, receive

__all__ = [
    "Learner",
    "LearnerBatch",
    "LeftOut",
    "LossTerm",
    "Reencoder",
    "Reverify",
    "RewardTable",
    "UpdateGroup",
    "arrange",
    "build_batches",
    "collect",
    "own_ending",
    "read_step",
    "receive",
    "write_step",
]
