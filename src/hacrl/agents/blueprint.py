"""Everything an agent is made from: small enough to be sent to the process that makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from hacrl.agents.errors import AgentError
from hacrl.agents.policy import Policy
from hacrl.agents.precision import DTYPES, Precision, choose_precision, sizes_of
from hacrl.agents.ranks import Ranks
from hacrl.agents.shared_base import SharedBases
from hacrl.algorithm.critic import CriticParams
from hacrl.recipe.agent_settings import AgentSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings, UpdatesSettings
from hacrl.tasks.toy_models import models as toy_models


@dataclass(frozen=True)
class Blueprint:
    """The same blueprint makes the same agent, in any process."""

    agent: AgentSettings
    """With the `dtype` that was chosen for it; with `auto`, fp32 on a CPU and bf16 on a GPU."""
    optimiser: OptimiserSettings | None = None
    """With the agent's own learning rate; None: it is not going to be trained."""
    updates: UpdatesSettings = field(default_factory=UpdatesSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    total_steps: int | None = None
    """Of the whole run, for learning rates that decay."""
    critic: CriticParams | None = None
    seed: int = 0
    shares_device: bool = False
    """Whether other agents need its device while it does not work."""

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.name

    @property
    def device(self) -> str:
        """Where the agent computes, as the recipe has it."""
        return self.agent.device

    def load(self, ranks: Ranks | None = None, bases: SharedBases | None = None) -> Policy:
        """The agent, in this process and on its device; with `ranks`, this process's part of it.

        Agents that train adapters and get the same `bases` share the frozen weights of a model.
        """
        device = device_of(self.device)
        return Policy.load(
            self.name,
            model_path(self.agent.model),
            device=device,
            dtype=DTYPES[precision_of(self.agent, device).dtype],
            optimiser=self.optimiser,
            updates=self.updates,
            total_steps=self.total_steps,
            lora=self.agent.lora,
            critic=self.critic,
            engine=self.agent.engine,
            sampling=self.sampling,
            prompting=self.agent,
            seed=self.seed,
            ranks=ranks,
            bases=bases,
            shares_device=self.shares_device,
        )


def model_path(model: str) -> str | Path:
    """Where an agent's weights are; `toy:NAME` is made on first use."""
    kind, _, name = model.partition(":")
    return toy_models.build(name) if kind == "toy" else model


def precision_of(agent: AgentSettings, device: str) -> Precision:
    """What the agent is going to compute in on this device; may measure it."""
    needs_sizes = agent.dtype == "auto" and device == "cpu" and not agent.model.startswith("toy:")
    return choose_precision(agent.dtype, device, sizes_of(agent.model) if needs_sizes else None)


def device_of(name: str) -> str:
    """`auto` is a GPU if there is one. A GPU that this machine does not have is an `AgentError`."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if gpus else "cpu"
    if name != "cpu" and int(name.partition(":")[2] or 0) >= gpus:
        here = f"there are {gpus} GPUs here, counted from 0" if gpus else "there is no GPU here"
        raise AgentError(f"expected cpu or auto, got {name!r}: {here}")
    return name
