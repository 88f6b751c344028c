"""Each agent in processes of its own on a Ray cluster; the training loop stays in this one."""

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
from hacrl.recipe.agent_settings import ResourcesSettings
from hacrl.recipe.settings import RuntimeSettings
from hacrl.runtime.base import AgentLost, Traffic
from hacrl.runtime.cluster import Head, open_cluster
from hacrl.runtime.device_sharing import DeviceSharing
from hacrl.runtime.placement import Placement, bundles, shared_bundles
from hacrl.runtime.remote_agent import RemoteAgent, SharedDevices

T = TypeVar("T")


class RayRuntime:
    """Agents work in parallel, or one after the other if they share devices."""

    def __init__(self, settings: RuntimeSettings, resources: Mapping[str, ResourcesSettings]) -> None:
        """Connect to the cluster at `settings.address`, or start one here with CPUs for all agents.

        `resources` are those of each agent, by name.
        """
        self._settings = settings
        self._resources = resources
        self._notices: list[str] = []
        self._agents: list[RemoteAgent] = []
        self._cluster = ExitStack()
        if settings.share_devices:
            needed = shared_bundles(resources.values())
        else:
            needed = [bundle for agent in resources.values() for bundle in bundles(agent)]
        cpus = math.ceil(sum(bundle["CPU"] for bundle in needed))
        self._ray: Any = self._cluster.enter_context(
            open_cluster(settings.address, cpus, settings.start_seconds)
        )
        self._head = Head(self._ray.get_runtime_context().gcs_address)
        self._shared: SharedDevices | None = None
        if settings.share_devices:
            placement = Placement(self._ray, "shared", needed, spread=False, sharers=len(resources))
            self._shared = SharedDevices(placement, DeviceSharing())

    def load(self, blueprints: Sequence[Blueprint]) -> list[Agent]:
        """Start the processes of every agent and load its model there."""
        self._agents = [
            RemoteAgent(
                self._ray,
                self._head,
                blueprint,
                self._resources[blueprint.name],
                self._settings,
                self._notices.append,
                self._shared,
            )
            for blueprint in blueprints
        ]
        try:
            outcomes = self.run({agent.name: agent.start for agent in self._agents})
            for outcome in outcomes.values():
                if isinstance(outcome, AgentLost):
                    raise outcome  # a run needs all of its agents to begin
        except BaseException:
            self.close()
            raise
        return list(self._agents)

    def run(self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T | AgentLost]:
        """Each task in a thread that waits for its agent."""
        workers = 1 if self._shared else max(1, len(tasks))
        with ThreadPoolExecutor(max_workers=workers) as threads:
            futures = {name: threads.submit(partial(self._outcome, task)) for name, task in tasks.items()}
            try:
                for future in as_completed(futures.values()):
                    future.result()  # raise the first failure at once, however long the others take
                return {name: future.result() for name, future in futures.items()}
            except BaseException:  # the run ends: kill the other agents instead of waiting for them
                self._close_agents("the run ends")
                raise

    def _outcome(self, task: Callable[[], T]) -> T | AgentLost:
        try:
            return task()
        except AgentLost as lost:
            if self._settings.on_failure != "degrade":
                raise
            self._notices.append(f"{lost}. The others continue without it.")
            return lost

    def set_restore_point(self, folder_of: Callable[[str], Path]) -> None:
        """Restarted agents resume from these checkpoints."""
        for agent in self._agents:
            agent.set_restore_point(partial(folder_of, agent.name))

    def notices(self) -> list[str]:
        """Restarts and losses since the last call."""
        notices, self._notices[:] = list(self._notices), []
        return notices

    def traffic(self) -> dict[str, Traffic]:
        """Bytes to and from every agent since the last call."""
        return {agent.name: agent.traffic() for agent in self._agents}

    def close(self) -> None:
        """End the agents' processes and, if it was started here, the cluster."""
        self._close_agents("the run is over")
        self._cluster.close()

    def _close_agents(self, reason: str) -> None:
        for agent in self._agents:
            agent.close(reason)


RUNTIME = RayRuntime
