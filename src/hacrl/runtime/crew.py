"""The processes of one agent: where they are placed, how they meet, and how all of them are asked at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hacrl.runtime.agent_process import AgentProcess, Facts
from hacrl.runtime.cluster import CHECK_SECONDS


@dataclass(frozen=True)
class Resources:
    """What an agent gets: so many processes, called ranks, each with its CPUs and GPUs."""

    cpus: float = 1.0
    gpus: float = 0.0
    ranks: int = 1
    nodes: int = 1
    """Machines the ranks are spread over evenly."""

    @property
    def bundles(self) -> list[dict[str, float]]:
        """One per machine, as Ray wants it: what the ranks on it need together."""
        ranks = self.ranks // self.nodes
        needed = {"CPU": self.cpus * ranks, "GPU": self.gpus * ranks}
        return [{kind: amount for kind, amount in needed.items() if amount}] * self.nodes


class NoRoom(Exception):
    """The cluster has no place for an agent; the message says what it needs and what there is."""


class Crew:
    """Lives as long as its processes do: an agent that comes back gets a new one, with a new reservation."""

    def __init__(
        self, ray: Any, name: str, resources: Resources, seconds: float, check: Callable[[], None]
    ) -> None:
        """Reserve a placement group, in which all fit or none; start the processes in it.

        `check` is asked now and then while there is no room, and may raise to end the waiting.
        """
        self._ray = ray
        self._resources = resources
        self.pids: list[int] = []
        """Of the processes on this machine."""
        self._actors: list[Any] = []
        # On every machine of the group there is one bundle, and no machine has two.
        self._group = ray.util.placement_group(resources.bundles, strategy="STRICT_SPREAD", name=name)
        try:
            ends = time.monotonic() + seconds
            while not self._group.wait(min(CHECK_SECONDS, seconds)):
                check()
                if time.monotonic() >= ends:
                    raise NoRoom(f"found no room within {seconds:g} s: {self._shortage()}")
            self._actors = [self._start(f"{name}-rank{rank}", rank) for rank in range(resources.ranks)]
        except BaseException:
            self.end()
            raise

    def _start(self, name: str, rank: int) -> Any:
        strategies = self._ray.util.scheduling_strategies
        bundle = rank * self._resources.nodes // self._resources.ranks
        options = {
            "num_cpus": self._resources.cpus,
            "num_gpus": self._resources.gpus,
            "scheduling_strategy": strategies.PlacementGroupSchedulingStrategy(self._group, bundle),
            "name": name,
            "max_restarts": 0,  # Ray would bring back an agent without what it has learned
        }
        return self._ray.remote(AgentProcess).options(**options).remote(rank, self._resources.ranks)

    def ask(self, method: str, arguments: Sequence[Any]) -> list[Any]:
        """Ask all processes the same -> the references of their answers."""
        return [getattr(actor, method).remote(*arguments) for actor in self._actors]

    def keep_pids(self, facts: Sequence[Facts], node: str) -> None:
        """Remember the processes on this node, so that they can be ended even if they do not hear Ray."""
        self.pids = [fact.pid for fact in facts if fact.node == node]

    def end(self, cluster_lost: bool = False) -> None:
        """Kill the processes and free their place; a lost cluster must not be asked for it."""
        if not cluster_lost:
            for actor in self._actors:
                with suppress(Exception):  # it may be dead already
                    self._ray.kill(actor)
            with suppress(Exception):
                self._ray.util.remove_placement_group(self._group)
        for pid in self.pids:
            with suppress(ProcessLookupError):  # a stopped process does not hear Ray
                os.kill(pid, signal.SIGKILL)
        self._actors, self.pids = [], []

    def _shortage(self) -> str:
        needed = self._resources
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return (
            f"it needs {_amounts(needed.bundles[0])} on {_machines(needed.nodes)} "
            f"(resources.ranks {needed.ranks}, cpus {needed.cpus:g}, gpus {needed.gpus:g}, "
            f"nodes {needed.nodes}). The cluster has {_machines(len(machines))}, with "
            f"{'; '.join(_amounts(machine) for machine in machines)}. "
            f"Free, on all together: {_amounts(self._ray.available_resources())}"
        )


def _amounts(resources: dict[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
