"""How an agent in another process comes back: with a Ray that only plays processes, so that all is fast."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from hacrl.agents.blueprint import Blueprint
from hacrl.agents.errors import NonFiniteLoss
from hacrl.algorithm import GspoObjective
from hacrl.runtime import AgentLost, Traffic
from hacrl.runtime.agent_process import Facts
from hacrl.runtime.remote import ATTEMPTS, Conduct, RemoteAgent, Resources


class RayError(Exception): ...


class GetTimeoutError(RayError): ...


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class Process:
    """An agent whose only weight is the list of its updates, written as one number."""

    def __init__(self) -> None:
        self.weight = 0

    def load(self, blueprint: Blueprint, threads: int) -> Facts:
        return Facts(None, 1, None, pid=0, node="elsewhere")  # type: ignore[arg-type]

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "update":
            self.weight = 10 * self.weight + arguments[2]
            if arguments[2] == 9:
                raise NonFiniteLoss("odd")
        return self.weight

    def state(self) -> bytes:
        return save({"weight": torch.tensor(self.weight)})

    def load_state(self, state: bytes) -> None:
        self.weight = int(load(state)["weight"])


class FakeRay:
    """Calls the process at once. `fails` is asked before each call and may raise."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError
    )

    def __init__(self, fails: Callable[[str], None] = lambda asked: None) -> None:
        self.fails = fails
        self.names: list[str] = []
        self.experimental = SimpleNamespace(
            get_object_locations=lambda refs: {ref: {"object_size": len(repr(ref))} for ref in refs}
        )

    def remote(self, cls: type) -> Any:
        def start(**options: Any) -> Any:
            self.names.append(options["name"])
            return SimpleNamespace(remote=lambda: self._actor(Process()))

        return SimpleNamespace(options=start)

    def _actor(self, process: Process) -> Any:
        def method(name: str) -> Any:
            return SimpleNamespace(remote=lambda *arguments: lambda: self._answer(process, name, arguments))

        return SimpleNamespace(**{name: method(name) for name in ("load", "call", "state", "load_state")})

    def _answer(self, process: Process, name: str, arguments: tuple[Any, ...]) -> Any:
        self.fails(arguments[0] if name == "call" else name)
        try:
            return getattr(process, name)(*arguments)
        except NonFiniteLoss as error:
            raise RayTaskError(error) from error

    def put(self, value: Any) -> Any:
        return value

    def get(self, answer: Callable[[], Any], timeout: float) -> Any:
        return answer()

    def kill(self, actor: Any) -> None: ...

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}


class Dies:
    """Ends the process at the given calls, counted from 1."""

    def __init__(self, *moments: int, error: type[RayError] = RayError) -> None:
        self.moments, self.error, self.calls = moments, error, 0

    def __call__(self, asked: str) -> None:
        self.calls += 1
        if self.calls in self.moments:
            raise self.error


def agent(ray: FakeRay, notices: list[str] | None = None, **conduct: Any) -> RemoteAgent:
    notify = (notices if notices is not None else []).append
    remote = RemoteAgent(ray, Blueprint("ada", "m"), Resources(), Conduct(**conduct), notify)
    remote.start()
    return remote


def life(remote: RemoteAgent) -> list[Any]:
    """Two updates, a checkpoint, three more of which one fails half-way: what the loop sees of it."""
    seen: list[Any] = []
    for done in (1, 2):
        seen.append(remote.update(((),), GspoObjective(), done))
    seen.append({key: int(value) for key, value in remote.state().items()})
    for done in (3, 9, 4):
        try:
            seen.append(remote.update(((),), GspoObjective(), done))
        except NonFiniteLoss as error:
            seen.append(str(error))
    seen.append(remote.fingerprint())
    return seen


def test_a_process_lost_at_any_call_leaves_no_trace():
    undisturbed = life(agent(FakeRay()))
    assert undisturbed == [1, 12, {"weight": 12}, 123, "odd", 12394, "12394"]
    for first in range(1, 9):
        for second in range(first + 1, first + 6):  # also while it comes back
            notices: list[str] = []
            ray = FakeRay(Dies(first, second))
            assert life(agent(ray, notices)) == undisturbed, (first, second)
            assert len(notices) == 2
            assert ray.names == ["ada-0", "ada-1", "ada-2"]


def test_an_answer_that_comes_too_late_counts_as_lost():
    notices: list[str] = []
    assert agent(FakeRay(Dies(2, error=GetTimeoutError)), notices, deadline_seconds=7).fingerprint() == "0"
    assert notices == [
        "agent 'ada': no answer within 7 s (in fingerprint, attempt 1 of 4); it is started again and goes on "
        "where it was."
    ]


def test_what_kills_every_process_is_given_up_after_a_few():
    def deadly(asked: str) -> None:
        if asked == "fingerprint":
            raise RayError

    ray = FakeRay(deadly)
    remote = agent(ray)
    with pytest.raises(
        AgentLost, match=r"agent 'ada' was lost: its process is gone \(RayError\) \(in fingerpr"
    ):
        remote.fingerprint()
    assert len(ray.names) == ATTEMPTS
    with pytest.raises(AgentLost):  # and stays so
        remote.update(((),), GspoObjective())


@pytest.mark.parametrize("on_failure", ["degrade", "stop"])
def test_without_retry_the_first_loss_is_final(on_failure: str):
    ray = FakeRay(Dies(3))
    remote = agent(ray, on_failure=on_failure)
    remote.update(((),), GspoObjective())
    with pytest.raises(AgentLost):
        remote.fingerprint()
    assert ray.names == ["ada-0"]


def test_an_agent_that_finds_no_room_says_what_it_needs():
    ray = FakeRay(Dies(1, error=GetTimeoutError))
    with pytest.raises(
        AgentLost, match=r"no answer within 5 s: it needs 1 CPUs and 0 GPUs, free are 1 and 0"
    ):
        agent(ray, on_failure="stop", start_seconds=5)


def test_traffic_counts_responses_and_rows_of_answered_calls_only():
    remote = agent(FakeRay())
    arguments = (((),), GspoObjective(), 1)
    remote.update(*arguments)
    remote.fingerprint()
    assert remote.traffic() == Traffic(rollouts=0, rows=len(repr(arguments)))
    assert remote.traffic() == Traffic()
