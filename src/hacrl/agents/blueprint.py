"""Everything an agent is made from: small enough to be sent to the process that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from hacrl.agents.policy import Policy
from hacrl.agents.ranks import Ranks
from hacrl.agents.settings import LoraSettings, Optimisation, VllmSettings
from hacrl.algorithm.critic import CriticParams
from hacrl.tasks.toy_models import models as toy_models


@dataclass(frozen=True)
class Blueprint:
    """The same blueprint makes the same agent, in any process."""

    name: str
    model: str
    """`toy:NAME`, a directory that `save_pretrained` wrote, or a hub id."""
    device: str = "auto"
    optimisation: Optimisation | None = None
    lora: LoraSettings | None = None
    critic: CriticParams | None = None
    engine: VllmSettings | None = None
    """None: the built-in sampler."""
    seed: int = 0

    def load(self, ranks: Ranks | None = None) -> Policy:
        """The agent, in this process and on its device; with `ranks`, this process's part of it."""
        return Policy.load(
            self.name,
            model_path(self.model),
            device=device_of(self.device),
            optimisation=self.optimisation,
            lora=self.lora,
            critic=self.critic,
            engine=self.engine,
            seed=self.seed,
            ranks=ranks,
        )


def model_path(model: str) -> str | Path:
    """Where an agent's weights are; `toy:NAME` is made on first use."""
    kind, _, name = model.partition(":")
    return toy_models.build(name) if kind == "toy" else model


def device_of(name: str) -> str:
    """`auto` is a GPU if there is one."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"
