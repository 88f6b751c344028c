"""What draws an agent's responses in place of the trained model itself: vLLM in its process, or a server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hacrl.agents.backends.vllm import VllmEngine
from hacrl.agents.backends.vllm_adapters import AdapterRoom, adapted_modules, adapter_obstacle
from hacrl.agents.backends.vllm_server import VllmServer
from hacrl.agents.errors import AgentError
from hacrl.agents.ranks import Ranks
from hacrl.agents.rendering import Rendering
from hacrl.agents.sampler import Drawn, Job
from hacrl.agents.shared_base import SharedBases
from hacrl.recipe.agent_settings import VllmSettings
from hacrl.recipe.settings import SamplingSettings


class Engine(Protocol):
    """Draws responses of one agent or of several."""

    settings: VllmSettings
    context_length: int
    """Most tokens of a prompt and its response together."""
    tensor_parallel: int
    """Ranks that draw the same responses together."""

    def hold(self, agent: str, model: PreTrainedModel) -> None:
        """Make sure that the agent's next responses are drawn with exactly this model, or raise."""

    def draw(
        self, agent: str, jobs: Sequence[Job], sampling: SamplingSettings, encoder: Rendering
    ) -> list[Drawn]:
        """One response for each job; the log-probs are the engine's, at temperature 1."""

    def wake(self, *, cache: bool) -> None:
        """On a shared device: come back to hold weights, then, with the `cache`, to draw."""

    def sleep(self) -> None:
        """On a shared device: leave it to others."""


def make_engine(
    agent: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    settings: VllmSettings | None,
    sampling: SamplingSettings,
    *,
    trains: bool,
    ranks: Ranks,
    bases: SharedBases | None = None,
    shares_device: bool = False,
) -> Engine | None:
    """The engine that the recipe asks for, started; None: the built-in sampler.

    Of several `ranks` each has one. Agents with the same `bases` share one, which has their adapters beside
    the frozen weights. One that `shares_device` with other agents can sleep.
    """
    if settings is None:
        return None
    if settings.url is not None:
        return VllmServer(agent, settings, trains=trains, ranks=ranks)
    if model.device.type == "cpu":
        refuse_what_cpus_cannot(agent, settings, shares_device)
    start = partial(
        VllmEngine, agent, model, tokenizer, settings, sampling, ranks=ranks, sleeps=shares_device
    )
    modules = adapted_modules(model)
    if not modules or settings.merge_adapters:
        return start()
    obstacle = adapter_obstacle(model)
    if obstacle is not None:
        raise AgentError(
            f"agent {agent!r}: vLLM cannot load its adapter as such, because {obstacle}: set "
            "engine.merge_adapters: true"
        )
    if bases is None or not bases.ranks:
        return start(adapters=AdapterRoom(1, max(module.rank for module in modules)))
    return bases.engine(model, partial(start, adapters=AdapterRoom(len(bases.ranks), max(bases.ranks))))


def refuse_what_cpus_cannot(agent: str, settings: VllmSettings, shares_device: bool) -> None:
    """An `AgentError` for what vLLM can do on GPUs alone."""
    if shares_device:
        raise AgentError(
            f"agent {agent!r}: vLLM cannot sleep on CPUs, so it cannot leave a device that agents share "
            "(runtime.share_devices): set engine: builtin, or use a server (engine.url)"
        )
    if settings.tensor_parallel > 1:
        raise AgentError(
            f"agent {agent!r}: engine.tensor_parallel: expected 1 on CPUs, got {settings.tensor_parallel}: "
            "there vLLM names the memory that its processes share the same in all engines, and trips over "
            "what an earlier one has left"
        )
