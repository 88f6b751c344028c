"""Restarting an agent in another process, on a fake Ray without processes: it is fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from hacrl.agents.blueprint import Blueprint
from hacrl.agents.errors import EngineFailed, NonFiniteLoss
from hacrl.algorithm import GspoObjective
from hacrl.recipe.agent_settings import AgentSettings, ResourcesSettings
from hacrl.recipe.settings import OptimiserSettings, RuntimeSettings, SamplingSettings
from hacrl.runs import checkpoints as checkpoint
from hacrl.runs.files import StorageError
from hacrl.runtime import AgentLost, Traffic
from hacrl.runtime.actors import AgentInfo, Rendezvous
from hacrl.runtime.device_sharing import DeviceSharing
from hacrl.runtime.placement import Placement, shared_bundles
from hacrl.runtime.remote_agent import ATTEMPTS, RemoteAgent, SharedDevices


class RayError(Exception): ...


class GetTimeoutError(RayError): ...


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class Process:
    """An agent whose only weight is the list of its updates, written as one number."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = rank
        self.weight = 0
        self.started: list[int] = []

    def open_rendezvous(self, several_nodes: bool) -> tuple[str, int]:
        return "here", 7

    def load(self, blueprint: Blueprint, threads: int, rendezvous: Rendezvous | None) -> AgentInfo:
        return AgentInfo(None, 1, None, pid=0, node="elsewhere")  # type: ignore[arg-type]

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "score":
            return [(self.rank, row) for row in range(2)]
        if method == "write_state":
            Path(*arguments).mkdir(parents=True, exist_ok=True)
            Path(*arguments, "weight.json").write_text(str(self.weight))
        if method == "read_state":
            self.weight = int(Path(*arguments, "weight.json").read_text())
        if method == "start_sampling":
            self.started = [self.weight]
            return True
        if method == "finish_sampling":
            return self.started
        if method == "update":
            self.weight = 10 * self.weight + arguments[2]
            if arguments[2] == 9:
                raise NonFiniteLoss("odd")
        return str(self.weight) if method == "fingerprint" else self.weight

    def onload(self) -> None: ...

    def offload(self) -> None: ...


class FakeRay:
    """Calls the process directly. `fails` gets the name of each call first and may raise."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError
    )

    def __init__(self, fails: Callable[[str], None] = lambda method: None) -> None:
        self.fails = fails
        self.room = True
        self.names: list[str] = []
        self.bundles: list[list[dict[str, float]]] = []
        self.removed = 0
        self.present: set[Process] = set()
        """Those on the devices."""
        self.most_present = 0
        self.util = SimpleNamespace(
            placement_group=self._reserve,
            remove_placement_group=self._remove,
            scheduling_strategies=SimpleNamespace(
                PlacementGroupSchedulingStrategy=lambda *arguments: arguments
            ),
        )
        self.experimental = SimpleNamespace(
            get_object_locations=lambda refs: {ref: {"object_size": len(repr(ref))} for ref in refs}
        )

    def remote(self, cls: type) -> Any:
        def start(**options: Any) -> Any:
            self.names.append(options["name"])
            return SimpleNamespace(remote=lambda rank, ranks, named: self._actor(Process(rank, ranks)))

        return SimpleNamespace(options=start)

    def _reserve(self, bundles: list[dict[str, float]], strategy: str, name: str) -> Any:
        self.bundles.append(bundles)
        return SimpleNamespace(wait=lambda seconds: self.room)

    def _remove(self, group: Any) -> None:
        self.removed += 1

    def _actor(self, process: Process) -> Any:
        def method(name: str) -> Any:
            return SimpleNamespace(
                remote=lambda *arguments: cache(lambda: self._reply(process, name, arguments))
            )

        methods = ("open_rendezvous", "load", "call", "onload", "offload")
        return SimpleNamespace(process=process, **{name: method(name) for name in methods})

    def _reply(self, process: Process, name: str, arguments: tuple[Any, ...]) -> Any:
        self.fails(arguments[0] if name == "call" else name)
        if name in ("load", "onload"):
            self.present.add(process)
            self.most_present = max(self.most_present, len(self.present))
        if name == "offload":
            self.present.remove(process)
        try:
            return getattr(process, name)(*arguments)
        except NonFiniteLoss as error:
            raise RayTaskError(error) from error

    def put(self, value: Any) -> Any:
        return value

    def wait(self, pending: list[Any], timeout: float, **options: int) -> tuple[list[Any], list[Any]]:
        return pending, []

    def get(self, pending: list[Callable[[], Any]], timeout: float | None = None) -> list[Any]:
        return [reply() for reply in pending]

    def kill(self, actor: Any) -> None:
        self.present.discard(actor.process)

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0}}, {"Alive": False, "Resources": {"CPU": 64.0}}]

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """Empty ones, one after the other."""

    def make() -> Iterator[Path]:
        for number in count():
            (tmp_path / str(number)).mkdir()
            yield tmp_path / str(number)

    return make()


class Dies:
    """Ends the process at the given calls, counted from 1."""

    def __init__(self, *moments: int, error: type[RayError] = RayError) -> None:
        self.moments, self.error, self.calls = moments, error, 0

    def __call__(self, method: str) -> None:
        self.calls += 1
        if self.calls in self.moments:
            raise self.error


def agent(
    ray: FakeRay,
    notices: list[str] | None = None,
    resources: ResourcesSettings | None = None,
    shared: SharedDevices | None = None,
    **settings: Any,
) -> RemoteAgent:
    notify = (notices if notices is not None else []).append
    head: Any = SimpleNamespace(lost=False, check=lambda: None)
    remote = RemoteAgent(
        ray,
        head,
        Blueprint(AgentSettings(name="ada", model="m"), OptimiserSettings()),
        resources or ResourcesSettings(),
        RuntimeSettings(**settings),
        notify,
        shared,
    )
    remote.start()
    return remote


def life(remote: RemoteAgent, folder: Path) -> list[Any]:
    """Two updates, a checkpoint, three more of which one fails half-way: what the loop sees of it.

    Before the last two, an engine begins to draw.
    """
    seen: list[Any] = []
    for done in (1, 2):
        seen.append(remote.update(((),), GspoObjective(), done))
    remote.write_state(folder / "aside")
    seen.append((folder / "aside" / "weight.json").read_text())
    remote.set_restore_point(lambda: renamed(folder))
    for done in (3, 9, 4):
        if done == 9:
            seen.append(remote.start_sampling((), 1, SamplingSettings(), 0))
        try:
            seen.append(remote.update(((),), GspoObjective(), done))
        except NonFiniteLoss as error:
            seen.append(str(error))
    seen.append(remote.finish_sampling())
    seen.append(remote.fingerprint())
    return seen


def renamed(folder: Path) -> Path:
    """The checkpoint's last name, which it gets only now."""
    if (folder / "aside").exists():
        (folder / "aside").rename(folder / "saved")
    return folder / "saved"


def test_a_process_lost_at_any_call_changes_no_result(folders):
    undisturbed = life(agent(FakeRay()), next(folders))
    assert undisturbed == [1, 12, "12", 123, True, "odd", 12394, [123], "12394"]
    for first in range(1, 11):
        for second in range(first + 1, first + 7):  # also during the restart
            notices: list[str] = []
            ray = FakeRay(Dies(first, second))
            assert life(agent(ray, notices), next(folders)) == undisturbed, (first, second)
            assert len(notices) == 2
            assert ray.names == ["ada-0-rank0", "ada-1-rank0", "ada-2-rank0"]
            assert ray.removed == 2


def test_a_resumed_agent_is_restarted_from_where_it_was_resumed(tmp_path):
    (tmp_path / "weight.json").write_text("7")
    for moment in range(2, 5):
        remote = agent(FakeRay(Dies(moment)))
        remote.update(((),), GspoObjective(), 5)
        remote.read_state(tmp_path)
        assert remote.update(((),), GspoObjective(), 6) == 76
        assert remote.fingerprint() == "76"


def test_an_agent_lost_while_its_checkpoint_is_being_finished_waits_for_it(tmp_path, monkeypatch):
    gate, seal = Event(), checkpoint.seal_checkpoint

    def slow(*arguments: Any) -> None:
        assert gate.wait(30)
        seal(*arguments)

    monkeypatch.setattr(checkpoint, "seal_checkpoint", slow)
    store = checkpoint.CheckpointStore(tmp_path, keep=1)
    remote = agent(FakeRay(Dies(4)))
    remote.update(((),), GspoObjective(), 5)
    saved = store.save(1, lambda folder: remote.write_state(folder / "agents/ada") or {})

    def folder() -> Path:
        assert not saved.done()
        gate.set()
        return saved.result() / "agents/ada"

    remote.set_restore_point(folder)
    assert remote.update(((),), GspoObjective(), 6) == 56
    assert remote._starts == 2
    store.close()


def test_an_agent_that_needs_an_unfinished_checkpoint_fails(tmp_path):
    def failed() -> Path:
        raise StorageError("cannot write manifest.json: No space left on device")

    remote = agent(FakeRay(Dies(3)))
    remote.write_state(tmp_path)
    remote.set_restore_point(failed)
    for _ in range(2):  # a second call must not get an untrained agent
        with pytest.raises(StorageError, match="No space left"):
            remote.fingerprint()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_that_is_not_where_the_loop_can_see_it_is_an_error(tmp_path, monkeypatch, ranks):
    ray = FakeRay()
    monkeypatch.setattr(Process, "call", lambda process, method, arguments: None)
    with pytest.raises(StorageError, match=r"agent 'ada' wrote its state to .*absent.* all machines share"):
        agent(ray, resources=ResourcesSettings(ranks=ranks)).write_state(tmp_path / "absent")


def test_a_failed_write_is_not_retried(tmp_path):
    def full(method: str) -> None:
        if method == "write_state":
            raise RayTaskError(StorageError("cannot write state: No space left on device"))

    ray = FakeRay(full)
    with pytest.raises(StorageError, match="No space left"):
        agent(ray, resources=ResourcesSettings(ranks=2)).write_state(tmp_path)
    assert len(ray.names) == 2


def test_a_call_that_times_out_counts_as_lost():
    notices: list[str] = []
    assert agent(FakeRay(Dies(2, error=GetTimeoutError)), notices, deadline_seconds=7).fingerprint() == "0"
    assert notices == [
        "agent 'ada': no reply within 7 s (in fingerprint, attempt 1 of 4); restarting it where it left off."
    ]


def test_a_process_whose_engine_failed_is_replaced():
    def breaks(method: str) -> None:
        if method == "score" and len(ray.names) == 1:
            raise RayTaskError(EngineFailed("the vLLM engine of agent 'ada' cannot be used: it broke down"))

    notices: list[str] = []
    ray = FakeRay(breaks)
    assert agent(ray, notices).score([]) == [(0, 0), (0, 1)]
    (notice,) = notices
    assert notice.startswith(
        "agent 'ada': the vLLM engine of agent 'ada' cannot be used: it broke down (in sc"
    )
    ray = FakeRay(breaks)
    with pytest.raises(AgentLost, match="it broke down"):
        agent(ray, on_failure="degrade").score([])


def test_a_call_that_kills_every_process_is_not_retried_forever():
    def crashing(method: str) -> None:
        if method == "fingerprint":
            raise RayError

    ray = FakeRay(crashing)
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
    assert ray.names == ["ada-0-rank0"]
    assert ray.removed == 1


def test_an_agent_that_finds_no_room_says_what_it_needs():
    ray = FakeRay()
    ray.room = False
    with pytest.raises(AgentLost) as caught:
        agent(ray, resources=ResourcesSettings(cpus=2, gpus=1, ranks=4, nodes=2), start_seconds=0.01)
    assert str(caught.value) == (
        "agent 'ada' was lost: found no room within 0.01 s: it needs 4 CPUs and 2 GPUs on 2 machines "
        "(agents.N.resources). The cluster has 1 machine, with 4 CPUs and 0 GPUs. "
        "Free in total: 1 CPUs and 0 GPUs"
    )
    assert ray.bundles == [[{"CPU": 4, "GPU": 2}] * 2]  # requested once: waiting longer would not help
    assert ray.names == []
    assert ray.removed == 1


def test_all_ranks_are_called_and_their_shares_concatenated_in_order():
    ray = FakeRay()
    remote = agent(ray, resources=ResourcesSettings(ranks=3))
    assert remote.score([]) == [(rank, row) for rank in range(3) for row in range(2)]
    assert remote.update(((),), GspoObjective(), 1) == 1  # they all return the same
    assert ray.names == [f"ada-0-rank{rank}" for rank in range(3)]
    assert ray.bundles == [[{"CPU": 3.0}]]


def test_when_one_rank_is_lost_all_are_restarted(folders):
    both = ResourcesSettings(ranks=2)
    undisturbed = life(agent(FakeRay(), resources=both), next(folders))
    assert undisturbed[-2] == [123, 123]
    for moment in range(1, 22):
        ray = FakeRay(Dies(moment))
        assert life(agent(ray, resources=both), next(folders)) == undisturbed, moment
        assert ray.names == [f"ada-{start}-rank{rank}" for start in range(2) for rank in range(2)]


def test_traffic_counts_responses_and_rows_of_finished_calls_only():
    remote = agent(FakeRay())
    arguments = (((),), GspoObjective(), 1, 0.5)
    remote.update(*arguments)
    remote.fingerprint()
    assert remote.traffic() == Traffic(rollouts=0, rows=len(repr(arguments)))
    assert remote.traffic() == Traffic()


# --- shared devices ---------------------------------------------------------------------------------------


def sharers(ray: Any, **settings: Any) -> list[RemoteAgent]:
    needed = [ResourcesSettings(), ResourcesSettings()]
    shared = SharedDevices(
        Placement(ray, "shared", shared_bundles(needed), spread=False, sharers=2), DeviceSharing()
    )
    return [agent(ray, resources=resources, shared=shared, **settings) for resources in needed]


def lives(agents: list[RemoteAgent]) -> list[Any]:
    """Two agents, one after the other in every phase."""
    seen: list[Any] = []
    for done in (1, 2):
        seen += [remote.score([]) for remote in agents]
        seen += [remote.update(((),), GspoObjective(), done) for remote in agents]
    return [*seen, *(remote.fingerprint() for remote in agents)]


@pytest.mark.parametrize("error", [RayError, GetTimeoutError])
def test_at_most_one_agent_is_on_the_shared_devices_whichever_call_fails(error: type[RayError]):
    calls = Dies()
    undisturbed = lives(sharers(ray := FakeRay(calls)))
    assert undisturbed[-2:] == ["12", "12"]
    assert ray.most_present == 1
    for moment in range(1, calls.calls + 1):
        ray = FakeRay(Dies(moment, error=error))
        assert lives(sharers(ray)) == undisturbed, moment
        assert ray.most_present == 1
        assert len(ray.names) in (2, 3)  # one lost at its last offload is not restarted
        assert ray.removed == 0  # the placement is shared


def test_an_agent_lost_while_offloading_is_not_restarted_without_retry():
    def fails(method: str) -> None:
        if method == "offload" and len(ray.present) == 1 and updated:
            raise GetTimeoutError

    updated: list[Any] = []
    ray = FakeRay(fails)
    ada, eve = sharers(ray, on_failure="degrade", deadline_seconds=7)
    updated.append(ada.update(((),), GspoObjective(), 1))
    assert eve.update(((),), GspoObjective(), 2) == 2
    assert ray.most_present == 1
    with pytest.raises(AgentLost, match="no reply within 7 s"):
        ada.fingerprint()
    assert len(ray.names) == 2


def test_no_two_ranks_of_an_agent_share_a_gpu():
    small, large = ResourcesSettings(cpus=2, gpus=1, ranks=2), ResourcesSettings(gpus=1, ranks=4)
    bundles = shared_bundles([small, large])
    assert bundles == [{"CPU": 3, "GPU": 1}] * 4
    ray: Any = FakeRay()
    placement = Placement(ray, "shared", bundles, spread=False, sharers=6)
    for resources in (small, large):
        options = [placement.actor_options(rank, resources) for rank in range(resources.ranks)]
        assert len({option["scheduling_strategy"][1] for option in options}) == resources.ranks
        assert 0.99 < 6 * options[0]["num_gpus"] <= 1
