"""How the ranks of an agent find each other: at a socket of the first one."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed

from hacrl.agents.ranks import Ranks

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Rendezvous:
    """Where the first rank listens, and how long it and the others wait."""

    host: str
    port: int
    join_seconds: float
    answer_seconds: float
    """For any of the others while they work together."""


def listen(host: str) -> socket.socket:
    """A free port that only `host` can be reached at."""
    listener = socket.socket()
    listener.bind((host, 0))
    listener.listen()
    return listener


def join(meeting: Rendezvous, rank: int, count: int, device: str, listener: socket.socket | None) -> Ranks:
    """Meet the other ranks: NCCL between GPUs, gloo between CPUs. The first rank brings its listener."""
    if meeting.host == LOOPBACK:  # else both listen wherever the machine's name leads
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    kind = torch.device(device).type
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        meeting.host,
        meeting.port,
        count,
        is_master=rank == 0,
        timeout=timedelta(seconds=meeting.join_seconds),
        master_listen_fd=None if listener is None else listener.detach(),
    )
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=meeting.answer_seconds),
    )
    return Ranks(rank, count, kind)
