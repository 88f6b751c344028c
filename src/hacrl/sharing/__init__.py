"""Sharing verified responses: who learns from whom, what a learner receives, its training batch."""

from hacrl.runs.trajectories import read_step, write_step
from hacrl.sharing.batches import (
    BatchSettings,
    LearnerBatch,
    LossTerm,
    PeerOrder,
    UpdateGroup,
    build_batches,
)
from hacrl.sharing.reencode import Learner, LeftOut, LengthNorm, Reencoder
from hacrl.sharing.table import Reverify, RewardTable, arrange, collect, receive
from hacrl.sharing.topology import Topology, TopologyKind, make_topology

__all__ = [
    "BatchSettings",
    "Learner",
    "LearnerBatch",
    "LeftOut",
    "LengthNorm",
    "LossTerm",
    "PeerOrder",
    "Reencoder",
    "Reverify",
    "RewardTable",
    "Topology",
    "TopologyKind",
    "UpdateGroup",
    "arrange",
    "build_batches",
    "collect",
    "make_topology",
    "read_step",
    "receive",
    "write_step",
]
