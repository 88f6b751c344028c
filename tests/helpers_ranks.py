"""Ranks of one agent without Ray: forked processes with a rendezvous on the loopback interface."""

from __future__ import annotations

import multiprocessing
import pickle
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import distributed

from hacrl.agents.ranks import Ranks
from hacrl.runtime.actors import LOOPBACK, Rendezvous, join, listen

COUNT = 2


def together(work: Callable[[Ranks], Any], count: int = COUNT) -> list[Any]:
    """What `work` returns on each rank."""
    context = multiprocessing.get_context("fork")
    with listen(LOOPBACK) as listener:
        rendezvous = Rendezvous(*listener.getsockname(), join_seconds=300, collective_seconds=300)
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        processes = [
            context.Process(
                target=_rank, args=(work, rank, count, rendezvous, listener, pipes[rank][1]), daemon=True
            )
            for rank in range(count)
        ]
        for process in processes:
            process.start()
    replies = [
        pickle.loads(receiver.recv_bytes()) if receiver.poll(300) else "no reply" for receiver, _ in pipes
    ]
    for process, pipe in zip(processes, pipes, strict=True):
        process.kill()
        process.join()
        process.close()
        for end in pipe:
            end.close()
    assert all(isinstance(reply, tuple) for reply in replies), "\n".join(map(str, replies))
    return [reply[0] for reply in replies]


def _rank(
    work: Callable[[Ranks], Any],
    rank: int,
    count: int,
    rendezvous: Rendezvous,
    listener: socket.socket,
    reply: Connection,
) -> None:
    torch.set_num_threads(1)
    try:
        ranks = join(rendezvous, rank, count, "cpu", listener if rank == 0 else None)
        reply.send_bytes(pickle.dumps((work(ranks),)))  # `send` would share the tensors' memory
        distributed.destroy_process_group()
    except BaseException:
        reply.send_bytes(pickle.dumps(traceback.format_exc()))
