"""What runs in the process of an agent of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load, save

from hacrl.agents.blueprint import Blueprint
from hacrl.agents.policy import Policy
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
    """A policy; everything that comes in or goes out is plain data, weights only as safetensors."""

    _policy: Policy

    def load(self, blueprint: Blueprint, threads: int) -> Facts:
        """Make the agent. (Not in `__init__`: there Ray would hide what went wrong.)"""
        import ray

        torch.set_num_threads(threads)
        self._policy = policy = blueprint.load()
        node = ray.get_runtime_context().get_node_id()
        return Facts(policy.encoder, policy.parameters, policy.context_length, os.getpid(), node)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What the policy's method returns."""
        return getattr(self._policy, method)(*arguments)

    def state(self) -> bytes:
        """The policy's training state."""
        return save(self._policy.state())

    def load_state(self, state: bytes) -> None:
        """Go on where `state` was taken."""
        self._policy.load_state(load(state))
