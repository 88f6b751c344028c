"""Each agent in a process of its own on a Ray cluster; the training loop stays here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint
from hacrl.runtime.base import AgentLost, Traffic
from hacrl.runtime.cluster import Head, open_cluster
from hacrl.runtime.device_sharing import DeviceSharing
from hacrl.runtime.placement import Place, Resources, shared_bundles
from hacrl.runtime.remote_agent import FailurePolicy, RemoteAgent, SharedDevices

T = TypeVar("T")


class RayRuntime:
    """Agents work at the same time, as far as the cluster has room for them."""

    def __init__(
        self,
        resources: Mapping[str, Resources],
        conduct: FailurePolicy,
        address: str | None = None,
        *,
        share_devices: bool = False,
    ) -> None:
        """Connect to the cluster at `host:port`, or start one on this machine with room for the agents.

        Agents that share devices have one place together and work one after the other.
        """
        self._resources = resources
        self._conduct = conduct
        self._notices: list[str] = []
        self._agents: list[RemoteAgent] = []
        self._cluster = ExitStack()
        if share_devices:
            bundles = shared_bundles(resources.values())
        else:
            bundles = [bundle for needed in resources.values() for bundle in needed.bundles]
        cpus = math.ceil(sum(bundle["CPU"] for bundle in bundles))
        self._ray: Any = self._cluster.enter_context(open_cluster(address, cpus, conduct.start_seconds))
        self._head = Head(self._ray.get_runtime_context().gcs_address)
        self._shared: SharedDevices | None = None
        if share_devices:
            place = Place(self._ray, "shared", bundles, spread=False, sharers=len(resources))
            self._shared = SharedDevices(place, DeviceSharing())

    def load(self, blueprints: Sequence[Blueprint]) -> list[Agent]:
        """Start a process for every agent and load its model there."""
        self._agents = [
            RemoteAgent(
                self._ray,
                self._head,
                blueprint,
                self._resources[blueprint.name],
                self._conduct,
                self._notices.append,
                self._shared,
            )
            for blueprint in blueprints
        ]
        try:
            outcomes = self.run({agent.name: agent.start for agent in self._agents})
            for outcome in outcomes.values():
                if isinstance(outcome, AgentLost):
                    raise outcome  # nobody can go on without an agent that never was there
        except BaseException:
            self.close()
            raise
        return list(self._agents)

    def run(self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T | AgentLost]:
        """All tasks at the same time, each in a thread that waits for its agent; or one after the other."""
        at_once = 1 if self._shared else max(1, len(tasks))
        with ThreadPoolExecutor(max_workers=at_once) as threads:
            futures = {name: threads.submit(partial(self._outcome, task)) for name, task in tasks.items()}
            try:
                for future in as_completed(futures.values()):
                    future.result()  # the first failure is told at once, however long the others take
                return {name: future.result() for name, future in futures.items()}
            except BaseException:  # one failure ends the run: nobody is to wait for the other agents
                self._give_up("the run ends")
                raise

    def _outcome(self, task: Callable[[], T]) -> T | AgentLost:
        try:
            return task()
        except AgentLost as lost:
            if self._conduct.on_failure != "degrade":
                raise
            self._notices.append(f"{lost}. The others go on without it.")
            return lost

    def set_restore_point(self, folder_of: Callable[[str], Path]) -> None:
        """What a new process of an agent reads first."""
        for agent in self._agents:
            agent.set_restore_point(partial(folder_of, agent.name))

    def notices(self) -> list[str]:
        """Restarts and losses since the last call."""
        told, self._notices[:] = list(self._notices), []
        return told

    def traffic(self) -> dict[str, Traffic]:
        """Bytes to and from every agent since the last call."""
        return {agent.name: agent.traffic() for agent in self._agents}

    def close(self) -> None:
        """End the agents' processes and, if it was started here, the cluster."""
        self._give_up("the run is over")
        self._cluster.close()

    def _give_up(self, reason: str) -> None:
        for agent in self._agents:
            agent.give_up(reason)
