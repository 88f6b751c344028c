"""vLLM engines in a simulated step: where they are, what they draw, how they get the weights.

An engine is `beside` its agent all the time, with weights and a cache of its own on the same GPUs; or agents
take `turns` on all GPUs: an engine is awake while its agent draws, and its agent's training state is in CPU
memory then. `docs/simulate.md` explains each formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from hacrl.analysis.doctor.examination import UNKNOWN_PROMPT, AgentPlan, Diagnosis
from hacrl.analysis.doctor.memory import Memory
from hacrl.analysis.doctor.models import ModelFacts
from hacrl.analysis.doctor.turns import USABLE, turns
from hacrl.analysis.simulate.hardware import Hardware
from hacrl.analysis.simulate.work import LOGITS_TOUCHED, Work, Workload, body, forward_flops, head, scoring

Place = Literal["recipe", "beside", "turns"]
PLACES: tuple[str, ...] = get_args(Place)
MOST_ROWS = 256
"""Responses that one engine decodes at the same time, at most: vLLM's default."""
PASSES_OF_SYNC = 6
"""Over the weights when an engine gets new ones: read, written, and compared twice with the agent's."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The engines of one agent."""

    devices: int
    """GPUs that the agent and its engines use."""
    split: int
    """GPUs that the weights of one engine are split over; there are devices / split engines."""
    rows: int
    """Responses that each engine decodes at the same time, at most."""
    moved: float
    """Bytes between each GPU and CPU memory in a step: the training state, there and back."""
    memory: int
    """The most on each GPU at any time."""
    in_turns: bool


def engine_plans(found: Diagnosis, place: Place) -> dict[str, EnginePlan]:
    """By agent; agents that draw with the built-in sampler have none."""
    if place == "turns":
        return _in_turns(found)
    plans = {}
    for agent in found.agents:
        settings = found.recipe.agent(agent.name).engine
        if agent.facts and agent.memory and (settings is not None or place == "beside"):
            cache = None if settings is None else round(1e9 * settings.cache_gigabytes)
            plans[agent.name] = _beside(found, agent, agent.memory, agent.facts, cache)
    return plans


def _beside(
    found: Diagnosis, agent: AgentPlan, memory: Memory, facts: ModelFacts, cache: int | None
) -> EnginePlan:
    """Without a `cache` of its own, an engine gets what training leaves of the GPU."""
    width = 4 if agent.precision.dtype == "float32" else 2
    weights = width * facts.parameters
    training = memory.kept - memory.engine + memory.activations
    if cache is None:
        cache = int(USABLE * found.gpu_memory) - training - weights
    row = _full_row(found, facts, width)
    if cache < row:
        raise ValueError(
            f"agent {agent.name}: beside {training / 1e9:.3g} GB for training and {weights / 1e9:.3g} GB for "
            f"its engine's weights there is no room for a response of full length ({row / 1e9:.3g} GB) on a "
            "GPU: give it more ranks, or use --engines turns"
        )
    rows = min(MOST_ROWS, found.recipe.sampling.max_rows, cache // row)
    return EnginePlan(agent.ranks, 1, rows, 0.0, training + weights + cache, in_turns=False)


def _in_turns(found: Diagnosis) -> dict[str, EnginePlan]:
    planned = turns(found)
    if not planned:
        raise ValueError(
            "--engines turns: agents take turns on GPUs of a cluster: set resources.gpus and ray"
        )
    devices = round(sum(agent.gpus * agent.ranks for agent in found.agents))
    for turn in planned:
        if not turn.rows:
            raise ValueError(
                f"agent {turn.name}: there is no room for a response of full length beside its engine"
            )
    return {
        turn.name: EnginePlan(
            devices=devices,
            split=turn.tensor_parallel,
            rows=min(MOST_ROWS, turn.rows),
            moved=2 * turn.offloaded / devices,
            memory=max(turn.training, turn.handing_over, turn.engine + min(MOST_ROWS, turn.rows) * turn.row),
            in_turns=True,
        )
        for turn in planned
    }


def _full_row(found: Diagnosis, facts: ModelFacts, width: int) -> int:
    """Bytes of the keys and values of a response of full length and its prompt."""
    longest = found.recipe.sampling.max_new_tokens + (found.recipe.max_prompt_tokens or UNKNOWN_PROMPT)
    return min(longest, facts.context or longest) * 2 * facts.layers * facts.key_value * width


@dataclass(frozen=True, slots=True)
class EngineCost:
    """Seconds of one agent's step."""

    generate: float
    sync: float
    """Until the engine has the agent's weights and the agent is on its GPUs again."""
    score: float
    """The agent's log-probs of what its engine has drawn."""


def engine_cost(
    facts: ModelFacts, load: Workload, plan: EnginePlan, hardware: Hardware, link: float
) -> EngineCost:
    """What an agent's engines cost in a step."""
    if hardware.engine is None:
        raise ValueError(
            f"{hardware.name}: how fast vLLM is there has not been measured: choose another --hardware"
        )
    work, exchanged = generating(facts, load, plan)
    weights = load.width * facts.parameters
    elsewhere = (plan.devices - 1) / plan.devices
    sync = PASSES_OF_SYNC * weights / plan.split * hardware.update.per_byte
    return EngineCost(
        generate=hardware.engine.seconds(work) + exchanged / link,
        sync=sync + weights * elsewhere / link + plan.moved / hardware.host,
        score=hardware.update.seconds(scoring(facts, load)),
    )


def generating(facts: ModelFacts, load: Workload, plan: EnginePlan) -> tuple[Work, float]:
    """The work of one GPU, and the bytes it receives from others that hold parts of the same layers.

    A finished response makes room for the next one, so all rows are in use until the last responses are
    drawn. `passes` are steps of the engine: it launches all layers at once. One process
    takes all of its tokens.
    """
    engines = plan.devices // plan.split
    rows, prompts = load.responses / engines, load.prompts / engines
    fed, drawn = prompts * load.prompt_tokens, rows * load.response_tokens
    seen = load.prompt_tokens + load.response_tokens / 2
    at_once = min(rows, plan.rows)
    steps = drawn / at_once + load.longest_response - load.response_tokens + 1
    attended = fed * load.prompt_tokens / 2 + drawn * seen
    flops = forward_flops(facts, fed + drawn, predicted=drawn, attended=attended)
    moved = steps * load.width * (body(facts) + head(facts))
    moved += drawn * seen * 2 * facts.layers * facts.key_value * load.width
    moved += drawn * LOGITS_TOUCHED * 4 * facts.vocabulary
    share = (plan.split - 1) / plan.split
    sums = 2 * facts.layers * (fed + drawn) * facts.hidden * load.width  # of attention and of the MLP
    return Work(flops / plan.split, moved / plan.split, steps, drawn), 2 * share * sums


def on_all_devices(loads: Mapping[str, Workload], plans: Mapping[str, EnginePlan]) -> dict[str, Workload]:
    """The loads of agents that take turns, each sharded over all GPUs."""
    return {
        name: replace(load, ranks=plans[name].devices) if name in plans else load
        for name, load in loads.items()
    }
