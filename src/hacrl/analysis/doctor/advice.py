"""Warnings about a recipe that can run, each with what to change."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hacrl.analysis.doctor.examination import AgentPlan, Diagnosis, usual_rate
from hacrl.analysis.doctor.memory import in_units, memory_of, rounded
from hacrl.recipe.problems import Problem

TOO_LARGE_LEARNING_RATE = 1e-3
"""Whatever the size of the model."""
BOLD = 4.0
"""So many times the usual learning rate is dangerous, with `MANY` responses in an update."""
MANY = 128
"""Responses in an update; fewer make the gradient noisier, and every update as long as with many."""
LARGE_REFERENCE = 1e9
LARGE_CHECKPOINT = 10e9


def warnings_for(found: Diagnosis) -> list[Problem]:
    """All warnings, in the order of the recipe's sections."""
    method = found.recipe.method.advice(found.recipe)
    return [*_agents(found), *_sharing(found), *method, *_numbers(found), *_memory(found)]


def _agents(found: Diagnosis) -> Iterator[Problem]:
    limit = found.recipe.sampling.max_new_tokens
    for agent in found.agents:
        yield from _learning_rate(found, agent)
    contexts = [agent.facts.context for agent in found.agents if agent.facts and agent.facts.context]
    if contexts and limit >= min(contexts):
        yield Problem(
            "sampling.max_new_tokens",
            f"{limit} does not fit the smallest context of {min(contexts)} tokens: "
            "responses are cut off earlier there; set a smaller number",
        )


def _learning_rate(found: Diagnosis, agent: AgentPlan) -> Iterator[Problem]:
    """A learning rate that is large for the size of the model and the number of responses per update.

    Gemma-3-270M lost all it could do at 1e-5 with 64 responses per update, and was stable at 2e-6 with 128.
    """
    rate, recipe = agent.learning_rate, found.recipe
    if rate is None or not agent.trains:
        return
    if agent.facts is None:
        if rate >= TOO_LARGE_LEARNING_RATE:
            yield Problem(
                f"{agent.key}.learning_rate",
                f"{rate:g} usually ruins a policy: try 1e-6 (large) to 2e-4 (tiny models)",
            )
        return
    usual = usual_rate(agent.facts, recipe.agent(agent.name))
    responses = agent.rollouts // recipe.own_mini_batches
    if rate > BOLD * usual * min(1.0, math.sqrt(responses / MANY)):
        yield Problem(
            f"{agent.key}.learning_rate",
            f"{rate:g} may ruin a model of {rounded(agent.facts.parameters)} parameters with {responses} "
            f"responses in an update: {usual:g} is usual for its size"
            + ("; or raise prompts_per_step" if responses < MANY else ""),
        )


def _sharing(found: Diagnosis) -> Iterator[Problem]:
    recipe = found.recipe
    if len(found.agents) > 1 and len({(agent.model, agent.lora) for agent in recipe.agents}) == 1:
        yield Problem("agents", "all start from the same model, so they have little to learn from each other")
    if recipe.method.shares and not any(agent.peers for agent in found.agents):
        why = (
            "there is only one agent"
            if len(recipe.agents) == 1
            else "no agent has a peer in exchange.topology"
        )
        yield Problem("method", f"{recipe.method.name} shares responses, but {why}: every agent trains alone")
    if all(agent.learned == recipe.prompts_per_step for agent in found.agents if agent.trains):
        yield Problem(
            "samples_per_prompt",
            "groups have a single response, so all advantages are 0: set at least 2",
        )


def _numbers(found: Diagnosis) -> Iterator[Problem]:
    recipe = found.recipe
    for name in ("temperature", "top_p"):
        if getattr(recipe.sampling, name) != 1.0:
            yield Problem(
                f"sampling.{name}",
                "ratios assume that responses are sampled from the policy itself: set 1",
            )
    for section, every in (("evaluation", recipe.evaluation.every), ("checkpoint", recipe.checkpoint.every)):
        if every != "auto" and every > recipe.steps:
            yield Problem(
                f"{section}.every", f"{every} is more than the run's {recipe.steps} steps: it never happens"
            )


def _memory(found: Diagnosis) -> Iterator[Problem]:
    for agent in found.agents:
        if agent.memory and agent.memory.reference >= LARGE_REFERENCE:
            yield Problem(
                "optimiser.kl",
                f"the KL term keeps a second copy of agent {agent.name!r} "
                f"({in_units(agent.memory.reference)}): 0 or lora avoids it",
            )
    for device in device_memory(found):
        if device.needed > device.available:
            yield Problem(
                "sampling.max_rows",
                f"about {in_units(device.needed)} are needed on {device.name}, "
                f"which has {in_units(device.available)}: lower it, max_new_tokens or "
                "updates.tokens_per_micro_batch, or use lora or gradient_checkpointing",
            )
    saved = sum(12 * agent.facts.trained for agent in found.agents if agent.facts)
    if found.recipe.checkpoint.every == 1 and saved >= LARGE_CHECKPOINT:
        yield Problem(
            "checkpoint.every", f"each checkpoint takes about {in_units(saved)}: set auto, or use lora"
        )


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes that the agents on a device need, and bytes that it has."""

    name: str
    needed: int
    available: int


def device_memory(found: Diagnosis) -> list[DeviceMemory]:
    """Of this machine's devices, which agents share, and of each agent's share of a cluster's GPU."""
    by_device: dict[str, list[AgentPlan]] = defaultdict(list)
    for agent in found.agents:
        if agent.memory and not agent.gpus:
            by_device[agent.device].append(agent)
    if found.recipe.runtime.share_devices:
        needed = _one_at_a_time(by_device)
    else:
        needed = {device: needed_on(agents) for device, agents in by_device.items()}
    here = [DeviceMemory(device, amount, memory_of(device)) for device, amount in needed.items()]
    return here + [
        DeviceMemory(
            f"each GPU of {agent.name}", needed_on([agent]), round(min(1.0, agent.gpus) * found.gpu_memory)
        )
        for agent in found.agents
        if agent.memory and agent.gpus
    ]


def needed_on(agents: list[AgentPlan]) -> int:
    """All agents of a device stay in memory; only one samples or updates at a time."""
    return _kept(agents) + max((agent.memory.passing for agent in agents if agent.memory), default=0)


def _kept(agents: list[AgentPlan]) -> int:
    """What all agents together hold all the time; weights that several of them share count once."""
    known = [(agent, agent.memory) for agent in agents if agent.memory]
    shared = {
        (agent.model, agent.device, agent.precision.dtype, memory.shared): memory.shared
        for agent, memory in known
        if memory.shared
    }
    return sum(memory.kept - memory.shared for _, memory in known) + sum(shared.values())


def _one_at_a_time(by_device: Mapping[str, list[AgentPlan]]) -> dict[str, int]:
    """With `share_devices`: a GPU holds one agent at a time, and the CPU's memory all that are offloaded."""
    needed = {
        device: max(needed_on([agent]) for agent in agents)
        for device, agents in by_device.items()
        if device != "cpu"
    }
    kept = _kept([agent for agents in by_device.values() for agent in agents])
    passing = [agent.memory.passing for agent in by_device.get("cpu", ()) if agent.memory]
    return needed | {"cpu": kept + max(passing, default=0)}
