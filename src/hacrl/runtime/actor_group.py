"""The processes of one agent: how they are started in their place, and how all of them are asked at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hacrl.runtime.agent_process import AgentProcess, Facts
from hacrl.runtime.placement import Place, Resources


class ActorGroup:
    """Lives as long as its processes do: an agent that comes back gets a new one."""

    def __init__(
        self,
        ray: Any,
        name: str,
        resources: Resources,
        seconds: float,
        check: Callable[[], None],
        shared: Place | None = None,
    ) -> None:
        """Wait for a place in which all fit, the agent's own or a `shared` one; start the processes in it."""
        self._ray = ray
        self.pids: list[int] = []
        """Of the processes on this machine."""
        self._actors: list[Any] = []
        self._own = None if shared else Place(ray, name, resources.bundles, spread=True)
        place = shared or self._own
        assert place is not None
        try:
            place.wait(seconds, check)
            for rank in range(resources.ranks):
                options = place.seat(rank, resources) | {
                    "name": f"{name}-rank{rank}",
                    "max_restarts": 0,  # Ray would bring back an agent without what it has learned
                }
                actor = ray.remote(AgentProcess).options(**options).remote(rank, resources.ranks)
                self._actors.append(actor)
        except BaseException:
            self.end()
            raise

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
            if self._own is not None:
                self._own.free()
        for pid in self.pids:
            with suppress(ProcessLookupError):  # a stopped process does not hear Ray
                os.kill(pid, signal.SIGKILL)
        self._actors, self.pids = [], []
