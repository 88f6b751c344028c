"""Placement of an agent's actors on a cluster: a Ray placement group, reserved as a whole or not at all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from hacrl.recipe.agent_settings import ResourcesSettings
from hacrl.runtime.cluster import CHECK_SECONDS

Bundle = dict[str, float]
"""CPUs and GPUs on one machine, in Ray's format."""


class NoRoom(Exception):
    """The cluster has no room for an agent; the message says what it needs and what there is."""


class Placement:
    """Room for the ranks of one agent, or of all agents that share devices."""

    def __init__(
        self, ray: Any, name: str, bundles: Sequence[Bundle], *, spread: bool, sharers: int = 1
    ) -> None:
        """Request the bundles, each on a machine of its own (`spread`) or all on one.

        `sharers` agents each get an equal fraction of every GPU.
        """
        self._ray = ray
        self._bundles = bundles
        self._spread = spread
        self._sharers = sharers
        strategy = "STRICT_SPREAD" if spread else "STRICT_PACK"
        self._group = ray.util.placement_group(list(bundles), strategy=strategy, name=name)

    def wait(self, seconds: float, check: Callable[[], None]) -> None:
        """Block until there is room, or raise `NoRoom`. `check` is called every few seconds and may raise."""
        deadline = time.monotonic() + seconds
        while not self._group.wait(min(CHECK_SECONDS, seconds)):
            check()
            if time.monotonic() >= deadline:
                raise NoRoom(f"found no room within {seconds:g} s: {self._shortage()}")

    def actor_options(self, rank: int, resources: ResourcesSettings) -> dict[str, Any]:
        """Ray's options for the actor of a rank. No two ranks of an agent get the same GPU."""
        bundle = rank * len(self._bundles) // resources.ranks
        return {
            "num_cpus": resources.cpus,
            "num_gpus": math.floor(1e4 * resources.gpus / self._sharers) / 1e4,  # Ray would round up
            "scheduling_strategy": self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, bundle
            ),
        }

    def free(self) -> None:
        """Release the resources; Ray kills whatever still runs on them."""
        with suppress(Exception):
            self._ray.util.remove_placement_group(self._group)

    def _shortage(self) -> str:
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        each = _amounts(self._bundles[0])
        needed = f"{each} on {_machines(len(self._bundles))}"
        if not self._spread:
            needed = f"{len(self._bundles)} times {each} on 1 machine"
        return (
            f"it needs {needed} (agents.N.resources). The cluster has {_machines(len(machines))}, with "
            f"{'; '.join(_amounts(machine) for machine in machines)}. "
            f"Free in total: {_amounts(self._ray.available_resources())}"
        )


def bundles(agent: ResourcesSettings) -> list[Bundle]:
    """One bundle per machine: what the agent's ranks on it need together."""
    ranks = agent.ranks // agent.nodes
    return [_bundle(agent.cpus * ranks, agent.gpus * ranks)] * agent.nodes


def shared_bundles(agents: Collection[ResourcesSettings]) -> list[Bundle]:
    """For agents that share devices: one bundle per rank, with CPUs for that rank of each, a GPU for all."""
    cpus, gpus = sum(agent.cpus for agent in agents), max(agent.gpus for agent in agents)
    return [_bundle(cpus, gpus)] * max(agent.ranks for agent in agents)


def _bundle(cpus: float, gpus: float) -> Bundle:
    return {kind: amount for kind, amount in {"CPU": cpus, "GPU": gpus}.items() if amount}


def _amounts(resources: Bundle) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
