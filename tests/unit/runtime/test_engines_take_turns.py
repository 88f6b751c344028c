"""The order in which agents with engines use a shared device, with a stand-in engine: never two awake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from hacrl.agents import policy as policy_module
from hacrl.agents.backends.vllm import VllmEngine
from hacrl.agents.backends.vllm_adapters import AdapterRoom
from hacrl.agents.errors import AgentError
from hacrl.agents.policy import Policy
from hacrl.agents.sampler import Drawn, Job
from hacrl.agents.shared_base import SharedBases
from hacrl.recipe.agent_settings import VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from hacrl.runtime import device_sharing
from hacrl.runtime.device_sharing import DeviceSharing, SharedDeviceAgent
from helpers_agents import (
    EOS,
    likelihood,
    random_rows,
    text_prompts,
    tiny_model,
    tiny_tokenizer,
    training_rows,
)
from helpers_vllm import install


class Device:
    """What is on it: fails as soon as something is there that must not be."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.models: set[str] = set()
        self.engines: dict[str, str] = {}

    def happens(self, agent: str, event: str) -> None:
        self.events.append(f"{agent}: {event}")
        if event in ("model on", "model off"):
            (self.models.add if event == "model on" else self.models.discard)(agent)
        elif event == "asleep":
            self.engines.pop(agent, None)
        elif event in ("weights", "cache"):
            self.engines[agent] = event
        assert len(self.models | self.engines.keys()) <= 1, self.events
        assert event != "draw" or (self.engines == {agent: "cache"} and not self.models), self.events


class StandIn:
    """An engine that only says what it does."""

    tensor_parallel = 1
    context_length = 64

    def __init__(self, agent: str, device: Device) -> None:
        self.settings = VllmSettings()
        self._happens = lambda event: device.happens(agent, event)

    def hold(self, agent: str, model: Any) -> None:
        self._happens("hold")

    def draw(self, agent: str, jobs: Sequence[Job], sampling: Any, encoder: Any) -> list[Drawn]:
        self._happens("draw")
        return [Drawn((EOS,), (-1.0,), True) for _ in jobs]

    def wake(self, *, cache: bool) -> None:
        self._happens("cache" if cache else "weights")

    def sleep(self) -> None:
        self._happens("asleep")


class Plan:
    """A blueprint of an agent with an engine; loading puts its model on the device."""

    def __init__(self, name: str, device: Device) -> None:
        self.name, self.device = name, device

    def load(self, bases: SharedBases) -> Policy:
        self.device.happens(self.name, "model on")
        return Policy(
            self.name,
            tiny_model("qwen3"),
            tiny_tokenizer(),
            optimiser=OptimiserSettings(learning_rate=1e-3, kl=0.1),
            engine=VllmSettings(),
            shares_device=True,
        )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """fp64 stands in for CPU memory, as in the tests of device sharing."""
    device = Device()
    move = Policy.move

    def noted(self: Policy, target: Any) -> None:
        device.happens(self.name, "model off" if target == torch.float64 else "model on")
        move(self, target)

    monkeypatch.setattr(Policy, "move", noted)
    monkeypatch.setattr(Policy, "device", torch.float32)
    for module in (device_sharing, policy_module):
        monkeypatch.setattr(module, "OFFLOAD_DEVICE", torch.float64)
    monkeypatch.setattr(policy_module, "make_engine", lambda name, *rest, **more: StandIn(name, device))
    return device


def test_never_two_are_awake_on_a_device(device: Device) -> None:
    sharing, bases = DeviceSharing(), SharedBases()
    agents: list[Any] = [SharedDeviceAgent(Plan(name, device), sharing, bases) for name in ("ada", "bob")]  # type: ignore[arg-type]
    rows = training_rows(random_rows(2, 2))
    device.events.clear()
    for _ in range(2):  # steps
        for work in (
            lambda agent: agent.sample(text_prompts(2), 1, SamplingSettings(max_new_tokens=3), 0),
            lambda agent: agent.score(random_rows(1, 1)),
            lambda agent: agent.update([rows], likelihood),
        ):
            for agent in agents:
                work(agent)
    drawn = ["weights", "hold", "model off", "cache", "draw", "asleep", "model on"]
    step = [
        *("ada: model on", *(f"ada: {event}" for event in drawn)),
        *("ada: model off", "bob: model on", *(f"bob: {event}" for event in drawn)),
        *("bob: model off", "ada: model on", "ada: model off", "bob: model on") * 2,
    ]
    assert device.events == [*step, "bob: model off", *step]


def test_the_device_notices_two_that_are_awake(device: Device) -> None:
    device.happens("ada", "weights")
    with pytest.raises(AssertionError):
        device.happens("bob", "weights")


@pytest.mark.parametrize(("room", "level"), [(None, 2), (AdapterRoom(1, 8), 1)])
def test_vllm_forgets_weights_that_are_brought_again(
    monkeypatch: pytest.MonkeyPatch, room: AdapterRoom | None, level: int
) -> None:
    llm = install(monkeypatch)
    sampling = SamplingSettings()
    engine = VllmEngine(
        "ada", tiny_model("qwen3"), tiny_tokenizer(), VllmSettings(), sampling, room, sleeps=True
    )
    assert llm.made[0].settings["enable_sleep_mode"] is True
    llm.made[0].calls.clear()
    engine.sleep()
    engine.wake(cache=False)
    engine.wake(cache=True)
    assert llm.made[0].calls == [f"sleep {level}", "wake weights", "wake kv_cache"]


def test_on_cpus_it_cannot_sleep() -> None:
    with pytest.raises(
        AgentError, match=r"agent 'ada': vLLM cannot sleep on CPUs.*share_devices.*engine\.url"
    ):
        Policy("ada", tiny_model("qwen3"), tiny_tokenizer(), engine=VllmSettings(), shares_device=True)
