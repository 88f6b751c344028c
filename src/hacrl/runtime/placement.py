"""Room on a cluster: a placement group, of which all parts are there or none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hacrl.runtime.cluster import CHECK_SECONDS

Bundle = dict[str, float]
"""CPUs and GPUs that are on one machine, as Ray wants them."""


@dataclass(frozen=True)
class Resources:
    """What an agent gets: so many processes, called ranks, each with its CPUs and GPUs."""

    cpus: float = 1.0
    gpus: float = 0.0
    ranks: int = 1
    nodes: int = 1
    """Machines the ranks are spread over evenly."""

    @property
    def bundles(self) -> list[Bundle]:
        """One per machine: what the ranks on it need together."""
        ranks = self.ranks // self.nodes
        return [_bundle(self.cpus * ranks, self.gpus * ranks)] * self.nodes


class NoRoom(Exception):
    """The cluster has no place for an agent; the message says what it needs and what there is."""


class Place:
    """Where the ranks of an agent are, or those of all agents that share devices."""

    def __init__(
        self, ray: Any, name: str, bundles: Sequence[Bundle], *, spread: bool, sharers: int = 1
    ) -> None:
        """Ask for the bundles, each on a machine of its own (`spread`) or all on one."""
        self._ray = ray
        self._bundles = bundles
        self._spread = spread
        self._sharers = sharers
        strategy = "STRICT_SPREAD" if spread else "STRICT_PACK"
        self._group = ray.util.placement_group(list(bundles), strategy=strategy, name=name)

    def wait(self, seconds: float, check: Callable[[], None]) -> None:
        """Until there is room, or raise `NoRoom`; `check` is asked now and then and may raise."""
        ends = time.monotonic() + seconds
        while not self._group.wait(min(CHECK_SECONDS, seconds)):
            check()
            if time.monotonic() >= ends:
                raise NoRoom(f"found no room within {seconds:g} s: {self._shortage()}")

    def seat(self, rank: int, resources: Resources) -> dict[str, Any]:
        """Options for the process of a rank. No two ranks of an agent get the same GPU."""
        bundle = rank * len(self._bundles) // resources.ranks
        return {
            "num_cpus": resources.cpus,
            "num_gpus": math.floor(1e4 * resources.gpus / self._sharers) / 1e4,  # Ray would round up
            "scheduling_strategy": self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                self._group, bundle
            ),
        }

    def free(self) -> None:
        """Give it back, with all that runs there."""
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
            f"Free, on all together: {_amounts(self._ray.available_resources())}"
        )


def shared_bundles(agents: Collection[Resources]) -> list[Bundle]:
    """Of agents that share devices: one per rank, with CPUs for that rank of each agent and a GPU for all."""
    cpus, gpus = sum(agent.cpus for agent in agents), max(agent.gpus for agent in agents)
    return [_bundle(cpus, gpus)] * max(agent.ranks for agent in agents)


def _bundle(cpus: float, gpus: float) -> Bundle:
    return {kind: amount for kind, amount in {"CPU": cpus, "GPU": gpus}.items() if amount}


def _amounts(resources: Bundle) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
