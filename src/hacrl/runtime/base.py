"""The small interface between the training loop and the place where the agents live."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint

T = TypeVar("T")


class RuntimeFailure(Exception):
    """The place where agents should live cannot be used; the message says what to do."""


class AgentLost(RuntimeFailure):
    """An agent's process ended or did not answer in time, and is not to be started again."""

    def __init__(self, agent: str, reason: str) -> None:
        super().__init__(f"agent {agent!r} was lost: {reason}")
        self.agent = agent


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that went between the training loop and one agent's process."""

    rollouts: int = 0
    """Responses it drew."""
    rows: int = 0
    """Training rows made from verified responses, its own and its peers'."""


class Runtime(Protocol):
    """Makes agents and lets them work."""

    def load(self, blueprints: Sequence[Blueprint]) -> list[Agent]:
        """The agents, in the order of their blueprints."""

    def run(self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T | AgentLost]:
        """One task per agent, at the same time if the runtime can.

        A lost agent's outcome is its `AgentLost` where the others may go on without it; else it is raised.
        """

    def set_restore_point(self, folder_of: Callable[[str], Path]) -> None:
        """The agents are as their folders say, each under its name: lost ones may begin there again.

        A folder is asked for when it is needed: it may have to be waited for.
        """

    def notices(self) -> list[str]:
        """What the user should know of since the last call: restarts and losses."""

    def traffic(self) -> dict[str, Traffic]:
        """By agent since the last call; empty where nothing leaves the process."""

    def close(self) -> None:
        """End every process that was started here."""
