"""The interface between the training loop and the runtime that hosts its agents.

Adding a runtime touches two files: `RuntimeSettings` in the recipe, which lists its name, and a module
`<name>_runtime.py` in this package, whose `RUNTIME` is a class that implements `Runtime` and is made from the
runtime's settings and the agents' resources. Its agents are policies, or subclasses of `AgentProxy`, which
implement a single method.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint
from hacrl.agents.policy import Policy
from hacrl.types import Encoder

T = TypeVar("T")
P = ParamSpec("P")


class RuntimeFailure(Exception):
    """The runtime cannot be used; the message says what to do."""


class AgentLost(RuntimeFailure):
    """An agent's process died or timed out, and will not be restarted."""

    def __init__(self, agent: str, reason: str) -> None:
        super().__init__(f"agent {agent!r} was lost: {reason}")
        self.agent = agent


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes moved between the training loop and one agent's processes."""

    rollouts: int = 0
    """Responses it sampled."""
    rows: int = 0
    """Training rows sent to it, made from its own and its peers' verified responses."""


class Runtime(Protocol):
    """Loads agents and runs their work."""

    def load(self, blueprints: Sequence[Blueprint]) -> list[Agent]:
        """The agents, in the order of their blueprints."""

    def run(self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T | AgentLost]:
        """Run one task per agent, in parallel if the runtime can.

        If the others may continue without a lost agent, its result is `AgentLost`; otherwise that is raised.
        """

    def set_restore_point(self, folder_of: Callable[[str], Path]) -> None:
        """Restarted agents resume from these checkpoints, which hold the agents as they are now.

        `folder_of` maps an agent's name to its folder. It is called only when an agent is restarted, and may
        block until the checkpoint is complete.
        """

    def notices(self) -> list[str]:
        """Restarts and losses since the last call, as messages for the user."""

    def traffic(self) -> dict[str, Traffic]:
        """Bytes moved since the last call, by agent; empty if nothing leaves the process."""

    def close(self) -> None:
        """End every process that this runtime started."""


def _forward(method: Callable[Concatenate[Policy, P], T]) -> Callable[Concatenate[AgentProxy, P], T]:
    """A proxy's version of a policy's method: same signature, but handed to `call_policy`."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def forwarded(proxy: AgentProxy, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(proxy, *args, **kwargs)
        bound.apply_defaults()
        result: T = proxy.call_policy(method.__name__, bound.args[1:])
        return result

    return forwarded


class AgentProxy(ABC):
    """An `Agent` that stands for a policy which cannot be called directly: offloaded, or in another process.

    This is the only list of the policy's methods in the runtimes.
    """

    name: str
    encoder: Encoder
    parameters: int
    context_length: int | None

    sample = _forward(Policy.sample)
    start_sampling = _forward(Policy.start_sampling)
    finish_sampling = _forward(Policy.finish_sampling)
    score = _forward(Policy.score)
    features = _forward(Policy.features)
    prepare = _forward(Policy.prepare)
    update = _forward(Policy.update)
    gradient = _forward(Policy.gradient)
    fingerprint = _forward(Policy.fingerprint)
    memory = _forward(Policy.memory)
    write_state = _forward(Policy.write_state)
    read_state = _forward(Policy.read_state)
    save = _forward(Policy.save)

    @abstractmethod
    def call_policy(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What the policy's method returns for these positional arguments."""
