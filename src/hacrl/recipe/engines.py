"""What a recipe may ask of vLLM, in an agent's process or as a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hacrl.recipe.agent_settings import AgentSettings, VllmSettings
from hacrl.recipe.problems import Problem

if TYPE_CHECKING:
    from hacrl.recipe.recipe import Recipe

SERVER_ONLY = ("key_env", "weights_folder", "concurrency", "timeout_seconds", "retries")
"""Keys that mean nothing without a server."""


def engine_problems(recipe: Recipe) -> Iterator[Problem]:
    """Why vLLM cannot draw these agents' responses."""
    yield from _one_per_process(recipe)
    yield from _one_learner_per_server(recipe)
    for position, agent in enumerate(recipe.agents):
        if agent.engine is None:
            continue
        key = f"agents.{position}"
        yield from _tensor_parallel(recipe, agent, key)
        if agent.engine.url is None:
            yield from _in_process(recipe, agent, key)


def _tensor_parallel(recipe: Recipe, agent: AgentSettings, key: str) -> Iterator[Problem]:
    """Engines are split over the ranks that are there, of one machine."""
    assert agent.engine is not None
    size = agent.engine.tensor_parallel
    here = agent.resources.ranks // agent.resources.nodes if recipe.runtime.name == "ray" else 1
    if size == 1:
        return
    if agent.engine.url is not None:
        yield Problem(f"{key}.engine.tensor_parallel", "has no effect with engine.url: leave it out")
    elif agent.device == "cpu":
        yield Problem(f"{key}.engine.tensor_parallel", f"expected 1 on CPUs, got {size}")
    elif agent.lora is not None and not agent.engine.merge_adapters:
        yield Problem(
            f"{key}.engine.tensor_parallel",
            f"expected 1 with lora, got {size}: adapters that vLLM splits cannot be compared; or set "
            "engine.merge_adapters: true",
        )
    elif here % size:
        yield Problem(
            f"{key}.engine.tensor_parallel",
            f"expected a divisor of the agent's {here} ranks on a machine, got {size}",
        )


def _in_process(recipe: Recipe, agent: AgentSettings, key: str) -> Iterator[Problem]:
    """vLLM works on the first GPU that its process sees, beside the trained model."""
    if re.fullmatch(r"cuda:0*[1-9]\d*", agent.device):
        yield Problem(
            f"{key}.device",
            f"expected auto, cpu, cuda or cuda:0 with engine: vllm, got {agent.device!r}: with runtime: "
            "ray every agent sees only its own GPUs",
        )
    if recipe.runtime.share_devices and agent.device == "cpu":
        yield Problem(
            f"{key}.engine",
            "expected builtin, or a server (url), with runtime.share_devices on CPUs, got vllm: it cannot "
            "sleep there",
        )
    assert agent.engine is not None
    if agent.engine.merge_adapters and agent.lora is None:
        yield Problem(f"{key}.engine.merge_adapters", "has no effect without lora: leave it out")
    for setting in SERVER_ONLY:
        if getattr(agent.engine, setting) != VllmSettings.model_fields[setting].default:
            yield Problem(f"{key}.engine.{setting}", "has no effect without engine.url: leave it out")


def _one_per_process(recipe: Recipe) -> Iterator[Problem]:
    """vLLM's process groups are global: a process has one engine, which may have many adapters."""
    if recipe.runtime.name != "local":
        return
    inside = [
        (position, agent)
        for position, agent in enumerate(recipe.agents)
        if agent.engine and agent.engine.url is None
    ]
    for position, agent in inside[1:]:
        if not _share_an_engine(inside[0][1], agent):
            yield Problem(
                f"agents.{position}.engine",
                "expected builtin, or a server (url), for all agents but one with runtime: local, got "
                "another vllm: it cannot run twice in one process. Agents that train LoRA adapters of one "
                "model with the same engine settings share one; with runtime: ray every agent has its own",
            )


def _share_an_engine(one: AgentSettings, other: AgentSettings) -> bool:
    """Whether both train adapters of the same frozen weights, which are loaded as adapters."""
    same = ("model", "engine", "dtype", "device")
    return (
        one.lora is not None
        and other.lora is not None
        and one.engine is not None
        and not one.engine.merge_adapters
        and all(getattr(one, key) == getattr(other, key) for key in same)
    )


def _one_learner_per_server(recipe: Recipe) -> Iterator[Problem]:
    """A server has one set of weights: an agent that trains has it for itself."""
    first: dict[str, AgentSettings] = {}
    for position, agent in enumerate(recipe.agents):
        if agent.engine is None or agent.engine.url is None:
            continue
        other = first.setdefault(agent.engine.server.url, agent)
        if other is not agent and (agent.trains or other.trains or agent.model != other.model):
            yield Problem(
                f"agents.{position}.engine.url",
                f"expected another server than agent {other.name!r} has: it holds one set of weights",
            )
