"""All agents in this process, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint
from hacrl.agents.shared_base import SharedBases
from hacrl.recipe.agent_settings import ResourcesSettings
from hacrl.recipe.settings import RuntimeSettings
from hacrl.runtime.base import AgentLost, Traffic
from hacrl.runtime.device_sharing import DeviceSharing, SharedDeviceAgent

T = TypeVar("T")

TINY = 20_000_000
"""Parameters below which a second thread costs more than it gains."""


class LocalRuntime:
    """The default: starts no processes, so none can be lost."""

    def __init__(self, settings: RuntimeSettings, resources: Mapping[str, ResourcesSettings]) -> None:
        """With `share_devices` only the agent that is working is on its device. `resources` are Ray's."""
        self._sharing = DeviceSharing() if settings.share_devices else None

    def load(self, blueprints: Sequence[Blueprint]) -> list[Agent]:
        """Load every model in this process; agents that train adapters of one model share its weights."""
        agents_settings = [blueprint.agent for blueprint in blueprints]
        sharing = self._sharing
        bases = SharedBases([each.lora.rank for each in agents_settings if each.lora and each.engine])
        agents: list[Agent] = [
            SharedDeviceAgent(blueprint, sharing, bases) if sharing else blueprint.load(bases=bases)
            for blueprint in blueprints
        ]
        tiny = all(agent.parameters < TINY for agent in agents)
        if tiny and "OMP_NUM_THREADS" not in os.environ:  # the user's choice comes first
            torch.set_num_threads(1)
        return agents

    def run(self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T | AgentLost]:
        """In the order of the mapping."""
        return {name: task() for name, task in tasks.items()}

    def set_restore_point(self, folder_of: Callable[[str], Path]) -> None:
        """Agents are in the loop's own process: there is nothing to restore."""

    def notices(self) -> list[str]:
        """No agent is ever restarted or lost."""
        return []

    def traffic(self) -> dict[str, Traffic]:
        """Nothing leaves the process."""
        return {}

    def close(self) -> None:
        """Nothing was started."""


RUNTIME = LocalRuntime
