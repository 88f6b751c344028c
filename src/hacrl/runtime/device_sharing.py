"""Agents that share their devices: one of them works, the others wait in the CPU's memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.blueprint import Blueprint
from hacrl.agents.policy import Policy
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm.batch import Objective
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Encoder, MiniBatch, Prompt, Rollout

WAITING = torch.device("cpu")


class Sharer(Protocol):
    """An agent that shares its devices."""

    def come(self) -> None:
        """Be on the devices."""

    def leave(self) -> None:
        """Wait elsewhere."""


class DeviceSharing:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._present: Sharer | None = None

    def take(self, agent: Sharer) -> None:
        """Let the agent on its devices; whoever is there leaves first."""
        if self._present is not agent:
            if self._present is not None:
                self._present.leave()
            self._present = agent
            agent.come()


class SharedDeviceAgent:
    """`hacrl.agents.agent.Agent`: when it has to work it takes its turn, and stays until another does."""

    def __init__(self, blueprint: Blueprint, turns: DeviceSharing) -> None:
        self._turns = turns
        self.policy: Policy = blueprint.load()
        self._home = self.policy.device
        self.leave()  # the next one is to find room

    def come(self) -> None:
        """To the device it was made on."""
        self.policy.move(self._home)

    def leave(self) -> None:
        """To the CPU's memory."""
        self.policy.move(WAITING)

    @property
    def name(self) -> str:
        """Its own name."""
        return self.policy.name

    @property
    def encoder(self) -> Encoder:
        """How it writes prompts and responses."""
        return self.policy.encoder

    @property
    def parameters(self) -> int:
        """How many weights it has."""
        return self.policy.parameters

    @property
    def context_length(self) -> int | None:
        """Most tokens of a prompt and its response together."""
        return self.policy.context_length

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """As `Policy.sample`."""
        return self._working.sample(prompts, samples, sampling, seed)

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """As `Policy.score`."""
        return self._working.score(rows)

    def judge(self, mini_batches: Sequence[MiniBatch]) -> tuple[MiniBatch, ...]:
        """As `Policy.judge`."""
        return self._working.judge(mini_batches)

    def update(
        self, mini_batches: Sequence[MiniBatch], objective: Objective, done: int = 0
    ) -> list[UpdateReport]:
        """As `Policy.update`."""
        return self._working.update(mini_batches, objective, done)

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """As `Policy.gradient`."""
        return self._working.gradient(mini_batch, objective, update)

    def fingerprint(self) -> str:
        """As `Policy.fingerprint`; where the weights are makes no difference."""
        return self.policy.fingerprint()

    def write_state(self, folder: str | Path) -> None:
        """As `Policy.write_state`; where the weights are makes no difference."""
        self.policy.write_state(folder)

    def read_state(self, folder: str | Path) -> None:
        """As `Policy.read_state`; where the weights are makes no difference."""
        self.policy.read_state(folder)

    def save(self, directory: str | Path) -> None:
        """As `Policy.save`; where the weights are makes no difference."""
        self.policy.save(directory)

    @property
    def _working(self) -> Policy:
        self._turns.take(self)
        return self.policy
