"""Ranks of one agent without Ray: forked processes that meet on the loopback interface."""

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
from hacrl.runtime.rendezvous import LOOPBACK, Rendezvous, join, listen

COUNT = 2


def together(work: Callable[[Ranks], Any], count: int = COUNT) -> list[Any]:
    """What `work` returns on each rank."""
    context = multiprocessing.get_context("fork")
    with listen(LOOPBACK) as listener:
        meeting = Rendezvous(*listener.getsockname(), join_seconds=300, answer_seconds=300)
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        processes = [
            context.Process(
                target=_rank, args=(work, rank, count, meeting, listener, pipes[rank][1]), daemon=True
            )
            for rank in range(count)
        ]
        for process in processes:
            process.start()
    answers = [
        pickle.loads(receiver.recv_bytes()) if receiver.poll(300) else "no answer" for receiver, _ in pipes
    ]
    for process, pipe in zip(processes, pipes, strict=True):
        process.kill()
        process.join()
        process.close()
        for end in pipe:
            end.close()
    assert all(isinstance(answer, tuple) for answer in answers), "\n".join(map(str, answers))
    return [answer[0] for answer in answers]


def _rank(
    work: Callable[[Ranks], Any],
    rank: int,
    count: int,
    meeting: Rendezvous,
    listener: socket.socket,
    answer: Connection,
) -> None:
    torch.set_num_threads(1)
    try:
        ranks = join(meeting, rank, count, "cpu", listener if rank == 0 else None)
        answer.send_bytes(pickle.dumps((work(ranks),)))  # `send` would share the tensors' memory
        distributed.destroy_process_group()
    except BaseException:
        answer.send_bytes(pickle.dumps(traceback.format_exc()))
