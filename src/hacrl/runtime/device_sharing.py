"""Device sharing: one agent at a time is on the devices, the others are offloaded to CPU memory.

An agent's engine sleeps unless the agent draws, and while it draws it has the devices for itself (`Policy`).
"""

from __future__ import annotations

from typing import Any, Protocol

from hacrl.agents.blueprint import Blueprint
from hacrl.agents.policy import OFFLOAD_DEVICE, Policy
from hacrl.agents.shared_base import SharedBases
from hacrl.runtime.base import AgentProxy

WORK_OFFLOADED = frozenset({"fingerprint", "write_state", "read_state", "save"})
"""Methods of a policy that only read or write its tensors, on whatever device they are."""


class Offloadable(Protocol):
    """Something that can make room on the devices."""

    def onload(self) -> None:
        """Move to the devices."""

    def offload(self) -> None:
        """Free the devices."""


class DeviceSharing:
    """Keeps at most one agent on the devices."""

    def __init__(self) -> None:
        self._onloaded: Offloadable | None = None

    def acquire(self, agent: Offloadable) -> None:
        """Onload the agent, after offloading the current one. It stays until another acquires them."""
        if self._onloaded is not agent:
            if self._onloaded is not None:
                self._onloaded.offload()
            self._onloaded = agent
            agent.onload()


class OffloadablePolicy:
    """A policy and the device it was loaded on, the only one it can work on."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._device = policy.device

    def onload(self) -> None:
        """Back to its own device."""
        self.policy.move(self._device)

    def offload(self) -> None:
        """To CPU memory."""
        self.policy.move(OFFLOAD_DEVICE)


class SharedDeviceAgent(AgentProxy):
    """A policy in this process that acquires the shared devices when it has to work."""

    def __init__(self, blueprint: Blueprint, sharing: DeviceSharing, bases: SharedBases) -> None:
        """Load the policy, then offload it to make room for the next one to load.

        Weights that it has in common with others move with each of them: only one is at work at a time.
        """
        policy = blueprint.load(bases=bases)
        self.name = policy.name
        self.encoder = policy.encoder
        self.parameters = policy.parameters
        self.context_length = policy.context_length
        self._loaded = OffloadablePolicy(policy)
        self._sharing = sharing
        self._loaded.offload()

    def call_policy(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call the policy here, on its device if the method needs it."""
        if method not in WORK_OFFLOADED:
            self._sharing.acquire(self._loaded)
        return getattr(self._loaded.policy, method)(*arguments)
