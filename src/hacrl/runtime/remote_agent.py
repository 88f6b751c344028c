"""An agent in other processes, as the training loop sees it: restarted and restored when they are lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from hacrl.agents.blueprint import Blueprint
from hacrl.agents.errors import AgentError
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm.batch import Objective
from hacrl.recipe.agent_settings import ResourcesSettings
from hacrl.recipe.settings import RuntimeSettings, SamplingSettings
from hacrl.runs.files import StorageError
from hacrl.runtime.actors import ActorGroup, ProcessLost, Rendezvous
from hacrl.runtime.base import AgentLost, AgentProxy, Traffic
from hacrl.runtime.cluster import Head
from hacrl.runtime.device_sharing import DeviceSharing
from hacrl.runtime.placement import NoRoom, Placement
from hacrl.types import MiniBatch, Prompt, Rollout

T = TypeVar("T")

ATTEMPTS = 4
"""How often a call is retried before the agent counts as lost: the call itself may crash the agent."""
SPLIT_OVER_RANKS = frozenset({"sample", "finish_sampling", "score", "features", "memory"})
"""Methods for which every rank returns its share; otherwise all ranks return the same."""


@dataclass(frozen=True)
class SharedDevices:
    """The one placement of all agents, and which of them is on the devices."""

    placement: Placement
    sharing: DeviceSharing


class RemoteAgent(AgentProxy):
    """An agent in a process of its own, or in several: its ranks. All get the same calls.

    If one is lost, a new process loads the restore point and replays what has changed the agent since then.
    Agents compute the same in every process, so the results do not show the restart.
    """

    def __init__(
        self,
        ray: Any,
        head: Head,
        blueprint: Blueprint,
        resources: ResourcesSettings,
        settings: RuntimeSettings,
        notify: Callable[[str], None],
        shared: SharedDevices | None = None,
    ) -> None:
        self.name = blueprint.name
        self._ray = ray
        self._head = head
        self._blueprint = blueprint
        self._resources = resources
        self._settings = settings
        self._notify = notify
        self._shared = shared
        self._node = ray.get_runtime_context().get_node_id()
        self._actors: ActorGroup | None = None
        self._starts = 0
        self._closed: str | None = None
        """Why the agent is not restarted any more."""
        self._lost_offloading: ProcessLost | None = None
        """Raised at its next onload, rather than in the agent that took the devices over."""
        self._restore_point: Callable[[], Path] | None = None
        self._replay: list[tuple[str, tuple[Any, ...]]] = []
        """Methods and arguments of the calls since the restore point that a new process has to repeat."""
        self._moved: Counter[str] = Counter()
        self._lock = Lock()
        """Several learners may call the same agent, to be scored by it."""

    def start(self) -> None:
        """Start the processes and load the model there."""
        self._retry("load", self._ensure_running)

    def call_policy(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call the policy on every rank."""
        results = self._retry(method, lambda: self._request("call", method, arguments))
        if method in SPLIT_OVER_RANKS:
            return [item for share in results for item in share]
        return results[0]

    def prepare(self, mini_batches: Sequence[MiniBatch], ratios: bool = True) -> tuple[MiniBatch, ...]:
        """Where the policy has nothing to add, saves sending the rows there and back."""
        exact = not ratios or self._blueprint.agent.dtype == "float32"
        if exact and self._blueprint.critic is None:
            return tuple(mini_batches)
        return super().prepare(mini_batches, ratios)

    def update(
        self,
        mini_batches: Sequence[MiniBatch],
        objective: Objective,
        done: int = 0,
        steps_done: float | None = None,
    ) -> list[UpdateReport]:
        """Also remembers the update, to replay it after a restart."""
        arguments = (mini_batches, objective, done, steps_done)
        try:
            reports = super().update(*arguments)
        except AgentError:
            self._remember("update", arguments)  # it may have changed something before it failed
            raise
        self._remember("update", arguments)
        return reports

    def start_sampling(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> bool:
        """Also remembers it: after a restart, the weights of this moment draw the responses again."""
        arguments = (prompts, samples, sampling, seed)
        started = super().start_sampling(*arguments)
        if started:
            self._remember("start_sampling", arguments)
        return started

    def finish_sampling(self) -> list[Rollout]:
        """Also forgets what was started."""
        drawn = super().finish_sampling()
        self._replay = [call for call in self._replay if call[0] != "start_sampling"]
        return drawn

    def save(self, directory: str | Path) -> None:
        """The agent's machine has to share the directory with this one."""
        super().save(str(Path(directory).absolute()))

    def write_state(self, folder: str | Path) -> None:
        """All machines of the agent have to share the folder with this one."""
        super().write_state(str(Path(folder).absolute()))
        if not Path(folder).is_dir():
            raise StorageError(
                f"agent {self.name!r} wrote its state to {folder}, but on this machine it is not there: "
                "the run directory has to be on a file system that all machines share"
            )

    def read_state(self, folder: str | Path) -> None:
        """Also makes the folder the restore point."""
        super().read_state(str(Path(folder).absolute()))
        self.set_restore_point(lambda: Path(folder))

    def set_restore_point(self, folder: Callable[[], Path]) -> None:
        """From now on, restart from the state in this folder, which holds the agent as it is now.

        `folder` is called only on a restart, and may block until the checkpoint is complete.
        """
        trained = self._blueprint.optimiser is not None
        if self._settings.on_failure == "retry" and trained:
            self._restore_point = folder
            self._replay.clear()

    def onload(self) -> None:
        """Move to the shared devices; processes that are about to start are loaded there anyway."""
        lost, self._lost_offloading = self._lost_offloading, None
        if lost is not None:
            raise lost
        if self._actors is not None:
            self._request("onload")

    def offload(self) -> None:
        """Free the shared devices, by killing the processes if they do not offload in time."""
        if self._actors is not None:
            try:
                self._request("offload")
            except ProcessLost as error:
                self._lost_offloading = error
                self._end()

    def traffic(self) -> Traffic:
        """Bytes moved since the last call."""
        moved, self._moved = self._moved, Counter()
        return Traffic(rollouts=moved["sample"] + moved["finish_sampling"], rows=moved["update"])

    def close(self, reason: str) -> None:
        """Kill the processes for good: pending and later calls raise `AgentLost` with this reason."""
        self._closed = reason
        self._end()

    def _remember(self, method: str, arguments: tuple[Any, ...]) -> None:
        if self._settings.on_failure == "retry":
            self._replay.append((method, arguments))

    def _retry(self, doing: str, call: Callable[[], T]) -> T:
        """The result of a call, from restarted processes if need be; `AgentLost` after the last attempt."""
        attempts = ATTEMPTS if self._settings.on_failure == "retry" else 1
        with self._lock:
            for attempt in range(1, attempts + 1):
                try:
                    if self._shared is not None:
                        self._shared.sharing.acquire(self)
                    self._ensure_running()
                    return call()
                except ProcessLost as error:
                    reason = f"{error} (in {doing}, attempt {attempt} of {attempts})"
                    self._end()
                self._raise_if_closed()
                if attempt < attempts:
                    self._notify(f"agent {self.name!r}: {reason}; restarting it where it left off.")
            self.close(reason)
        raise AgentLost(self.name, reason)

    def _ensure_running(self) -> None:
        """Start and restore the agent unless it is running."""
        self._raise_if_closed()
        if self._actors is not None:
            return
        self._actors = actors = self._start_actors()
        infos = self._request("load", self._blueprint, self._threads, self._open_rendezvous())
        actors.keep_pids(infos, self._node)
        self.encoder = infos[0].encoder
        self.parameters = infos[0].parameters
        self.context_length = infos[0].context_length
        try:
            self._restore()
        except StorageError:
            self._end()  # or the next call would find an agent that has learned nothing yet
            raise

    def _start_actors(self) -> ActorGroup:
        self._check_still_needed()
        name = f"{self.name}-{self._starts}"
        placement = self._shared.placement if self._shared else None
        try:
            actors = ActorGroup(
                self._ray,
                self._head,
                name,
                self._resources,
                self._settings,
                self._check_still_needed,
                self._count,
                placement,
            )
        except NoRoom as error:
            self.close(str(error))
            raise AgentLost(self.name, str(error)) from error
        self._starts += 1
        return actors

    def _restore(self) -> None:
        """Bring a new agent to the current state: load the restore point, replay the calls since."""
        if self._restore_point is not None:
            self._request("call", "read_state", (str(self._restore_point().absolute()),))
        for method, arguments in self._replay:
            with suppress(AgentError):  # it failed the first time too
                self._request("call", method, arguments)

    def _open_rendezvous(self) -> Rendezvous | None:
        """Where the ranks find each other; None for a single rank."""
        if self._resources.ranks == 1:
            return None
        host, port = self._request("open_rendezvous", self._resources.nodes > 1)[0]
        return Rendezvous(host, port, self._settings.start_seconds, self._settings.deadline_seconds)

    @property
    def _threads(self) -> int:
        """One per CPU it has, unless the user sets the number here."""
        return int(os.environ.get("OMP_NUM_THREADS") or max(1.0, self._resources.cpus))

    def _request(self, method: str, *arguments: Any) -> list[Any]:
        """The results of all ranks; `ProcessLost` if they were ended or one is late or dead."""
        actors = self._actors
        if actors is None:
            raise ProcessLost("its processes were ended")
        try:
            return actors.call(method, *arguments)
        finally:
            if actors.ended and self._actors is actors:
                self._actors = None

    def _count(self, method: str, size: int) -> None:
        self._moved[method] += size

    def _raise_if_closed(self) -> None:
        if self._closed is not None:
            raise AgentLost(self.name, self._closed)

    def _check_still_needed(self) -> None:
        """Raise if the agent was closed or the cluster is lost."""
        self._raise_if_closed()
        self._head.check()

    def _end(self) -> None:
        """Kill the processes, if there are any."""
        actors, self._actors = self._actors, None
        if actors is not None:
            actors.end()
