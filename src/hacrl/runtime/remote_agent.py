"""An agent in a process of its own as the training loop sees it, and how it comes back when that is lost."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from torch import Tensor

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.blueprint import Blueprint
from hacrl.agents.errors import AgentError, EngineFailed
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm.batch import Objective
from hacrl.recipe.settings import SamplingSettings
from hacrl.runs.files import StorageError
from hacrl.runtime.actor_group import ActorGroup
from hacrl.runtime.agent_process import Facts
from hacrl.runtime.base import AgentLost, Traffic
from hacrl.runtime.cluster import CHECK_SECONDS, Head
from hacrl.runtime.device_sharing import DeviceSharing
from hacrl.runtime.placement import NoRoom, Place, Resources
from hacrl.runtime.rendezvous import Rendezvous
from hacrl.types import Encoder, MiniBatch, Prompt, Rollout

OnFailure = Literal["retry", "degrade", "stop"]
ATTEMPTS = 4
"""Times one thing is asked of an agent before it is given up: what kills it may be the question itself."""
TOGETHER_SECONDS = 10.0
"""How much longer than the first rank that failed the others may take: they may wait for it for ever."""


@dataclass(frozen=True)
class FailurePolicy:
    """How long an agent may take, and what happens when it is lost."""

    on_failure: OnFailure = "retry"
    start_seconds: float = 300.0
    deadline_seconds: float = 3600.0


@dataclass(frozen=True)
class SharedDevices:
    """The one place of all agents, in which they work in turns."""

    place: Place
    turns: DeviceSharing


class _Gone(Exception):
    """A process ended or did not answer in time."""


class RemoteAgent:
    """`hacrl.agents.agent.Agent` in another process, or in several: its ranks. All are asked the same.

    A lost process is replaced by a new one with the agent's last state on disk, in which the updates since
    then are made again. Agents do the same in every process, so that nothing shows it was replaced.
    """

    def __init__(
        self,
        ray: Any,
        head: Head,
        blueprint: Blueprint,
        resources: Resources,
        conduct: FailurePolicy,
        notify: Callable[[str], None],
        shared: SharedDevices | None = None,
    ) -> None:
        self.name = blueprint.name
        self._ray = ray
        self._head = head
        self._blueprint = blueprint
        self._resources = resources
        self._conduct = conduct
        self._notify = notify
        self._shared = shared
        self._node = ray.get_runtime_context().get_node_id()
        self._crew: ActorGroup | None = None
        self._facts: Facts | None = None
        self._starts = 0
        self._given_up: str | None = None
        self._missed: _Gone | None = None
        """Why it was lost when another agent came: it is told when it is asked for something itself."""
        self._snapshot: Callable[[], Path] | None = None
        self._since: list[tuple[Any, ...]] = []
        """Arguments of the updates since the snapshot."""
        self._moved: Counter[str] = Counter()
        self._turn = Lock()
        """Several learners may want to be scored by one agent."""

    @property
    def encoder(self) -> Encoder:
        """A copy of the agent's own."""
        return self._known.encoder

    @property
    def parameters(self) -> int:
        """How many weights the model has."""
        return self._known.parameters

    @property
    def context_length(self) -> int | None:
        """Most tokens of a prompt and its response together."""
        return self._known.context_length

    @property
    def _known(self) -> Facts:
        assert self._facts is not None, "start() comes first"
        return self._facts

    def start(self) -> None:
        """Make the process and load the model there."""
        self._persistently("load", self._ensure)

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """As `Policy.sample`."""
        rollouts: list[Rollout] = self._joined("sample", (prompts, samples, sampling, seed))
        return rollouts

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """As `Policy.score`."""
        scores: list[tuple[float, ...]] = self._joined("score", (rows,))
        return scores

    def judge(self, mini_batches: Sequence[MiniBatch]) -> tuple[MiniBatch, ...]:
        """As `Policy.judge`; without a critic there is nothing to ask."""
        if self._blueprint.critic is None:
            return tuple(mini_batches)
        judged: tuple[MiniBatch, ...] = self._call("judge", (mini_batches,))
        return judged

    def update(
        self, mini_batches: Sequence[MiniBatch], objective: Objective, done: int = 0
    ) -> list[UpdateReport]:
        """As `Policy.update`."""
        arguments = (mini_batches, objective, done)
        try:
            reports: list[UpdateReport] = self._call("update", arguments)
        except AgentError:
            self._remember(arguments)  # it may have changed something before it failed
            raise
        self._remember(arguments)
        return reports

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """As `Policy.gradient`."""
        gradient: Tensor = self._call("gradient", (mini_batch, objective, update))
        return gradient

    def fingerprint(self) -> str:
        """As `Policy.fingerprint`."""
        return str(self._call("fingerprint", ()))

    def save(self, directory: str | Path) -> None:
        """As `Policy.save`; the directory has to be one that the agent's machine shares with ours."""
        self._call("save", (str(Path(directory).absolute()),))

    def write_state(self, folder: str | Path) -> None:
        """As `Policy.write_state`; all machines of the agent have to share the folder with ours."""
        self._call("write_state", (str(Path(folder).absolute()),))
        if not Path(folder).is_dir():
            raise StorageError(
                f"agent {self.name!r} wrote its state to {folder}, but on this machine it is not there: "
                "the run directory has to be on a file system that all machines share"
            )

    def read_state(self, folder: str | Path) -> None:
        """As `Policy.read_state`. It is also what the agent comes back with."""
        self._call("read_state", (str(Path(folder).absolute()),))
        self.set_restore_point(lambda: Path(folder))

    def set_restore_point(self, folder: Callable[[], Path]) -> None:
        """From now on a new process begins with the state in this folder, which is as the agent is now.

        It is asked for when it is needed: it may have to be waited for.
        """
        if self._conduct.on_failure == "retry":
            self._snapshot = folder
            self._since.clear()

    def come(self) -> None:
        """Be on the devices that it shares; processes that are started now are there anyway."""
        missed, self._missed = self._missed, None
        if missed is not None:
            raise missed
        if self._crew is not None:
            self._ask("come")

    def leave(self) -> None:
        """Let another agent on the devices; processes that cannot leave are killed, and missed later."""
        if self._crew is not None:
            try:
                self._ask("leave")
            except _Gone as error:
                self._missed = error
                self._end()

    def traffic(self) -> Traffic:
        """What was moved since the last call."""
        moved, self._moved = self._moved, Counter()
        return Traffic(rollouts=moved["sample"], rows=moved["update"])

    def give_up(self, reason: str) -> None:
        """End the process and start none again: whoever waits for an answer learns that there is none."""
        self._given_up = reason
        self._end()

    def _remember(self, update: tuple[Any, ...]) -> None:
        if self._conduct.on_failure == "retry":
            self._since.append(update)

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What all ranks say alike."""
        return self._persistently(method, lambda: self._ask("call", method, arguments)[0])

    def _joined(self, method: str, arguments: tuple[Any, ...]) -> list[Any]:
        """What the ranks found for their shares, in order."""
        shares = self._persistently(method, lambda: self._ask("call", method, arguments))
        return [item for share in shares for item in share]

    def _persistently(self, doing: str, question: Callable[[], Any]) -> Any:
        """The answer, from a new process if need be; `AgentLost` when the agent is given up."""
        attempts = ATTEMPTS if self._conduct.on_failure == "retry" else 1
        with self._turn:
            for attempt in range(1, attempts + 1):
                try:
                    if self._shared is not None:
                        self._shared.turns.take(self)
                    self._ensure()
                    return question()
                except _Gone as error:
                    reason = f"{error} (in {doing}, attempt {attempt} of {attempts})"
                    self._end()
                self._refuse_if_given_up()
                if attempt < attempts:
                    self._notify(
                        f"agent {self.name!r}: {reason}; it is started again and goes on where it was."
                    )
            self.give_up(reason)
        raise AgentLost(self.name, reason)

    def _ensure(self) -> None:
        """Living processes with the agent as it is now."""
        self._refuse_if_given_up()
        if self._crew is not None:
            return
        self._check_use()
        try:
            name, seconds = f"{self.name}-{self._starts}", self._conduct.start_seconds
            place = self._shared.place if self._shared else None
            self._crew = crew = ActorGroup(self._ray, name, self._resources, seconds, self._check_use, place)
        except NoRoom as error:
            self.give_up(str(error))
            raise AgentLost(self.name, str(error)) from error
        self._starts += 1
        facts = self._ask("load", self._blueprint, self._threads, self._meeting())
        self._facts = facts[0]
        crew.keep_pids(facts, self._node)
        try:
            self._restore()
        except StorageError:
            self._end()  # nobody is to take the beginning for the agent as it is now
            raise

    def _restore(self) -> None:
        """Make a new agent what it was: its last state, and the updates since then again."""
        if self._snapshot is not None:
            self._ask("call", "read_state", (str(self._snapshot().absolute()),))
        for arguments in self._since:
            with suppress(AgentError):  # it failed the first time too
                self._ask("call", "update", arguments)

    def _refuse_if_given_up(self) -> None:
        if self._given_up is not None:
            raise AgentLost(self.name, self._given_up)

    def _check_use(self) -> None:
        """Raise if there is nobody left to start the processes for, or no cluster to start them on."""
        self._refuse_if_given_up()
        self._head.check()

    def _meeting(self) -> Rendezvous | None:
        """Where the ranks find each other; one alone needs nobody."""
        if self._resources.ranks == 1:
            return None
        host, port = self._ask("open_rendezvous", self._resources.nodes > 1)[0]
        return Rendezvous(host, port, self._conduct.start_seconds, self._conduct.deadline_seconds)

    @property
    def _threads(self) -> int:
        """As many as the agent would have here, or one per CPU it has."""
        return int(os.environ.get("OMP_NUM_THREADS") or max(1.0, self._resources.cpus))

    def _ask(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all ranks; `_Gone` when there is one missing in time."""
        ray, conduct, crew = self._ray, self._conduct, self._crew
        if crew is None:
            raise _Gone("its processes were ended")
        seconds = conduct.start_seconds if method in ("open_rendezvous", "load") else conduct.deadline_seconds
        answers: list[Any] = []
        try:
            sent = [ray.put(argument) for argument in arguments]
            answers = crew.ask(method, sent)
            values = self._get(answers, seconds)
        except ray.exceptions.RayTaskError as error:
            raise self._meaning(error.cause, answers) from None
        except ray.exceptions.GetTimeoutError as error:
            raise _Gone(f"no answer within {seconds:g} s") from error
        except (ray.exceptions.RayError, OSError) as error:
            raise _Gone(f"its process is gone ({type(error).__name__})") from error
        if method == "call":
            self._count(arguments[0], {"sample": answers, "update": sent[1:]})
        return values

    def _get(self, answers: list[Any], seconds: float) -> list[Any]:
        """As `ray.get`, but whoever waits also learns that the head is gone, or one of the ranks."""
        ends = time.monotonic() + seconds
        late = answers
        while late and (left := ends - time.monotonic()) > CHECK_SECONDS:
            ready, late = self._ray.wait(late, timeout=CHECK_SECONDS)
            if not ready:
                self._head.check()
            self._ray.get(ready)  # raises what it failed with: the others may wait for it
        return list(self._ray.get(answers, timeout=max(0.0, left)))

    def _meaning(self, cause: Exception, answers: list[Any]) -> Exception:
        """Of a failure: what the agent itself says, or that its ranks have lost each other."""
        if isinstance(cause, EngineFailed):
            return _Gone(str(cause))  # a new process has a new engine
        if len(answers) == 1:
            return cause
        if self._ray.wait(answers, num_returns=len(answers), timeout=TOGETHER_SECONDS)[1]:
            self._end()  # the others wait for the one that failed
        if isinstance(cause, AgentError | StorageError):
            return cause
        return _Gone(f"one of its {len(answers)} ranks failed ({type(cause).__name__}: {cause})")

    def _count(self, asked: str, objects: Mapping[str, list[Any]]) -> None:
        """Add the size of what matters of a call: the responses drawn, the rows to learn from."""
        if asked in objects:
            found = self._ray.experimental.get_object_locations(objects[asked])
            self._moved[asked] += sum(location["object_size"] for location in found.values())

    def _end(self) -> None:
        """Kill the processes, if there are any."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.end(self._head.lost)
