"""What runs in the process of an agent of its own, or in each of several."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import torch

from hacrl.agents.blueprint import Blueprint, device_of
from hacrl.agents.policy import Policy
from hacrl.runtime.device_sharing import WAITING
from hacrl.runtime.rendezvous import LOOPBACK, Rendezvous, join, listen
from hacrl.types import Encoder


@dataclass(frozen=True)
class Facts:
    """What the training loop has to know of an agent without asking it every time."""

    encoder: Encoder
    parameters: int
    context_length: int | None
    pid: int
    node: str
    """The id of the Ray node that the process is on."""


class AgentProcess:
    """A policy or one rank of it; what comes in or goes out is plain data, never weights."""

    _policy: Policy
    _home: torch.device

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        self._rank = rank
        self._ranks = ranks
        self._listener: socket.socket | None = None

    def open_rendezvous(self, elsewhere: bool) -> tuple[str, int] | None:
        """At the first rank: let the others come, if need be from elsewhere -> host and port."""
        if self._rank > 0:
            return None
        import ray

        self._listener = listen(ray.util.get_node_ip_address() if elsewhere else LOOPBACK)
        host, port = self._listener.getsockname()
        return host, port

    def load(self, blueprint: Blueprint, threads: int, meeting: Rendezvous | None) -> Facts:
        """Make the agent. (Not in `__init__`: there Ray would hide what went wrong.)"""
        import ray

        torch.set_num_threads(threads)
        ranks = None
        if meeting is not None:
            device = device_of(blueprint.device)
            ranks = join(meeting, self._rank, self._ranks, device, self._listener)
        self._policy = policy = blueprint.load(ranks)
        self._home = policy.device
        node = ray.get_runtime_context().get_node_id()
        return Facts(policy.encoder, policy.parameters, policy.context_length, os.getpid(), node)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What the policy's method returns."""
        return getattr(self._policy, method)(*arguments)

    def come(self) -> None:
        """Be on the device again that the agent was made on."""
        self._policy.move(self._home)

    def leave(self) -> None:
        """Wait in the CPU's memory: another agent has the device."""
        self._policy.move(WAITING)
