"""The exchange of verified answers between agents: pool, who learns from whom, training batches."""

from hacrl.runs.trajectories import read_run, read_step, write_step
from hacrl.sharing.batches import BatchSettings, LearnerBatch, PeerOrder, UpdateGroup, build_batches
from hacrl.sharing.faults import told
from hacrl.sharing.loss_term import LossTerm
from hacrl.sharing.normalise import LengthNorm
from hacrl.sharing.pool import Rejection, TrajectoryPool
from hacrl.sharing.reencode import Learner, LeftOut, Reencoder
from hacrl.sharing.table import Reverify, RewardTable, arrange, hear
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
    "Rejection",
    "Reverify",
    "RewardTable",
    "Topology",
    "TopologyKind",
    "TrajectoryPool",
    "UpdateGroup",
    "arrange",
    "build_batches",
    "hear",
    "make_topology",
    "read_run",
    "read_step",
    "told",
    "write_step",
]
