"""The exchange of verified answers between agents: pool, who learns from whom, training batches."""

from hacrl.exchange.batches import BatchSettings, Exercise, LearnerBatch, PeerOrder, build_batches
from hacrl.exchange.faults import told
from hacrl.exchange.lesson import Lesson
from hacrl.exchange.normalise import LengthNorm
from hacrl.exchange.pool import Rejection, TrajectoryPool
from hacrl.exchange.reencode import Learner, LeftOut, Reencoder
from hacrl.exchange.store import read_run, read_step, write_step
from hacrl.exchange.table import Reverify, RewardTable, arrange, hear
from hacrl.exchange.topology import Topology, TopologyKind, make_topology

__all__ = [
    "BatchSettings",
    "Exercise",
    "Learner",
    "LearnerBatch",
    "LeftOut",
    "LengthNorm",
    "Lesson",
    "PeerOrder",
    "Reencoder",
    "Rejection",
    "Reverify",
    "RewardTable",
    "Topology",
    "TopologyKind",
    "TrajectoryPool",
    "arrange",
    "build_batches",
    "hear",
    "make_topology",
    "read_run",
    "read_step",
    "told",
    "write_step",
]
