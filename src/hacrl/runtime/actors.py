"""An agent's actors, from both sides: `AgentProcess` runs in each, `ActorGroup` starts and calls them.

An agent has one actor per rank. Several ranks find each other at a rendezvous: a socket of the first one.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from hacrl.agents.blueprint import Blueprint, device_of
from hacrl.agents.errors import AgentError, EngineFailed
from hacrl.agents.ranks import Ranks
from hacrl.own_code import Importable, import_like, importable
from hacrl.recipe.agent_settings import ResourcesSettings
from hacrl.recipe.settings import RuntimeSettings
from hacrl.runs.files import StorageError
from hacrl.runtime.base import RuntimeFailure
from hacrl.runtime.cluster import CHECK_SECONDS, Head
from hacrl.runtime.device_sharing import OffloadablePolicy
from hacrl.runtime.placement import Placement, bundles
from hacrl.types import Encoder

LOOPBACK = "127.0.0.1"
STRAGGLER_SECONDS = 10.0
"""How long the other ranks get to return after one has failed: they may be waiting for it in a collective."""


class ProcessLost(Exception):
    """A process of the agent died or timed out; a new one may do better."""


@dataclass(frozen=True)
class AgentInfo:
    """What the training loop reads so often that it keeps a copy."""

    encoder: Encoder
    parameters: int
    context_length: int | None
    pid: int
    node: str
    """Id of the Ray node that the process is on."""


@dataclass(frozen=True)
class Rendezvous:
    """Where the first rank listens, and the timeouts of the process group."""

    host: str
    port: int
    join_seconds: float
    collective_seconds: float


def listen(host: str) -> socket.socket:
    """Listen on a free port of this address alone."""
    listener = socket.socket()
    listener.bind((host, 0))
    listener.listen()
    return listener


def join(rendezvous: Rendezvous, rank: int, count: int, device: str, listener: socket.socket | None) -> Ranks:
    """Join the other ranks: NCCL between GPUs, gloo between CPUs. The first rank passes its listener."""
    if rendezvous.host == LOOPBACK:  # by default both listen on whatever the host name resolves to
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    kind = torch.device(device).type
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        rendezvous.host,
        rendezvous.port,
        count,
        is_master=rank == 0,
        timeout=timedelta(seconds=rendezvous.join_seconds),
        master_listen_fd=None if listener is None else listener.detach(),
    )
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=rendezvous.collective_seconds),
    )
    return Ranks(rank, count, kind)


class AgentProcess:
    """The actor: a policy, or one rank of it. Only plain data goes in and out, never weights."""

    _loaded: OffloadablePolicy

    def __init__(self, rank: int = 0, ranks: int = 1, modules: Importable | None = None) -> None:
        """`modules`: those of the training loop, a method of the user's own among them."""
        if modules is not None:
            import_like(modules)
        self._rank = rank
        self._ranks = ranks
        self._listener: socket.socket | None = None

    def open_rendezvous(self, several_nodes: bool) -> tuple[str, int] | None:
        """On the first rank: start listening for the others -> host and port."""
        if self._rank > 0:
            return None
        import ray

        self._listener = listen(ray.util.get_node_ip_address() if several_nodes else LOOPBACK)
        host, port = self._listener.getsockname()
        return host, port

    def load(self, blueprint: Blueprint, threads: int, rendezvous: Rendezvous | None) -> AgentInfo:
        """Load the policy. (Not in `__init__`, where Ray would hide the error.)"""
        import ray

        torch.set_num_threads(threads)
        ranks = None
        if rendezvous is not None:
            device = device_of(blueprint.device)
            ranks = join(rendezvous, self._rank, self._ranks, device, self._listener)
        policy = blueprint.load(ranks)
        self._loaded = OffloadablePolicy(policy)
        node = ray.get_runtime_context().get_node_id()
        return AgentInfo(policy.encoder, policy.parameters, policy.context_length, os.getpid(), node)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What the policy's method returns."""
        return getattr(self._loaded.policy, method)(*arguments)

    def onload(self) -> None:
        """Move the policy to its device."""
        self._loaded.onload()

    def offload(self) -> None:
        """Move the policy to CPU memory."""
        self._loaded.offload()


class ActorGroup:
    """The actors of one agent. They are killed together: a restarted agent gets a new group."""

    def __init__(
        self,
        ray: Any,
        head: Head,
        name: str,
        resources: ResourcesSettings,
        settings: RuntimeSettings,
        check: Callable[[], None],
        on_moved: Callable[[str, int], None],
        shared: Placement | None = None,
    ) -> None:
        """Wait for room in a placement of its own or in the `shared` one, and start the actors there.

        `check` is called while waiting and may raise. `on_moved` gets the method and the bytes of each
        `sample`, `finish_sampling` and `update` that returned.
        """
        self.ended = False
        self.pids: list[int] = []
        """Processes on this machine."""
        self._ray = ray
        self._head = head
        self._settings = settings
        self._on_moved = on_moved
        self._actors: list[Any] = []
        self._own = None if shared else Placement(ray, name, bundles(resources), spread=True)
        placement = shared or self._own
        assert placement is not None
        try:
            placement.wait(settings.start_seconds, check)
            for rank in range(resources.ranks):
                options = placement.actor_options(rank, resources) | {
                    "name": f"{name}-rank{rank}",
                    "max_restarts": 0,  # Ray would restart it without what it has learned
                }
                actor = (
                    ray.remote(AgentProcess).options(**options).remote(rank, resources.ranks, importable())
                )
                self._actors.append(actor)
        except BaseException:
            self.end()
            raise

    def keep_pids(self, infos: Sequence[AgentInfo], node: str) -> None:
        """Remember the processes on this node, so that `end` can kill them even if they ignore Ray."""
        self.pids = [info.pid for info in infos if info.node == node]

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every actor -> the results by rank; `ProcessLost` if one is late or dead."""
        ray, settings = self._ray, self._settings
        starting = method in ("open_rendezvous", "load")
        seconds = settings.start_seconds if starting else settings.deadline_seconds
        pending: list[Any] = []
        try:
            sent = [ray.put(argument) for argument in arguments]
            pending = [getattr(actor, method).remote(*sent) for actor in self._actors]
            results = self._get(pending, seconds)
        except ray.exceptions.RayTaskError as error:
            raise self._explain(error.cause, pending) from None
        except ray.exceptions.GetTimeoutError as error:
            raise ProcessLost(f"no reply within {seconds:g} s") from error
        except (ray.exceptions.RayError, OSError) as error:
            raise ProcessLost(f"its process is gone ({type(error).__name__})") from error
        if method == "call":
            self._count(arguments[0], {"sample": pending, "finish_sampling": pending, "update": sent[1:]})
        return results

    def end(self) -> None:
        """Kill the actors and free their own placement. Skips a lost cluster, where calls would block."""
        self.ended = True
        if not self._head.lost:
            for actor in self._actors:
                with suppress(Exception):  # it may be dead already
                    self._ray.kill(actor)
            if self._own is not None:
                self._own.free()
        for pid in self.pids:
            with suppress(ProcessLookupError):  # a stopped process ignores Ray
                os.kill(pid, signal.SIGKILL)
        self._actors, self.pids = [], []

    def _get(self, pending: list[Any], seconds: float) -> list[Any]:
        """Like `ray.get`, but also notices early that the head or one of the ranks is gone."""
        deadline = time.monotonic() + seconds
        late = pending
        while late and (left := deadline - time.monotonic()) > CHECK_SECONDS:
            ready, late = self._ray.wait(late, timeout=CHECK_SECONDS)
            if not ready:
                self._head.check()
            self._ray.get(ready)  # raises its error now: the other ranks may be waiting for it
        return list(self._ray.get(pending, timeout=max(0.0, left)))

    def _explain(self, cause: Exception, pending: Sequence[Any]) -> Exception:
        """What to raise for an exception in one of the actors: its own, or that the ranks are out of step."""
        if isinstance(cause, EngineFailed):
            return ProcessLost(str(cause))  # a new process has a new engine
        if "ModuleNotFoundError" in str(cause):  # of a loss function, say, that this process can import
            missing = str(cause).strip().splitlines()[-1]
            return RuntimeFailure(
                f"an agent's process cannot import what the run needs ({missing}): install it there, or "
                "start the run in the directory that holds it"
            )
        if len(pending) == 1:
            return cause
        if self._ray.wait(pending, num_returns=len(pending), timeout=STRAGGLER_SECONDS)[1]:
            self.end()  # the others hang in a collective with the one that failed
        if isinstance(cause, AgentError | StorageError):
            return cause
        return ProcessLost(f"one of its {len(pending)} ranks failed ({type(cause).__name__}: {cause})")

    def _count(self, method: str, objects: Mapping[str, list[Any]]) -> None:
        """Report the size of sampled responses and of training rows, as Ray's object store has them."""
        if method in objects:
            found = self._ray.experimental.get_object_locations(objects[method])
            self._on_moved(method, sum(location["object_size"] for location in found.values()))
