"""Predict a recipe's step on some hardware: seconds by phase, bytes moved, memory of every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hacrl.analysis.doctor import AgentPlan
from hacrl.analysis.doctor.memory import in_units
from hacrl.analysis.doctor.models import ModelFacts
from hacrl.analysis.simulate.engines import EnginePlan, engine_cost, on_all_devices
from hacrl.analysis.simulate.hardware import Hardware, LoopCost
from hacrl.analysis.simulate.work import (
    Lengths,
    Workload,
    micro_batches,
    sampling,
    trained_responses,
    updating,
    workload,
)
from hacrl.analysis.tables import TextTable
from hacrl.recipe import Recipe

BYTES_PER_DRAWN_TOKEN = 17.0
BYTES_PER_TRAINED_TOKEN = 14.0
"""Of long responses from a large vocabulary; `python -m benchmarks.runtimes` measures those of short ones."""
SECONDS_PER_RESPONSE = {"math": 1 / 412, "exact": 1 / 282_821}
"""On two cores, as `python -m benchmarks.verifiers` prints them. Other verifiers are counted as `math`."""


@dataclass(frozen=True, slots=True)
class AgentCost:
    """One agent's step: seconds by phase, and bytes that its ranks and its process receive."""

    sample: float
    gather: float
    """Gathering all weights before sampling."""
    update: float
    shard: float
    """Gathering weights and reducing gradients during updates."""
    rank_bytes: float
    """Received by each rank from the others of the agent."""
    loop_bytes: float
    """Between the agent's process and the loop, both ways."""
    sync: float = 0.0
    """Bringing the weights to its engine, and itself back to its devices."""
    score: float = 0.0
    """Scoring what its engine has drawn."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """A whole step in seconds."""

    agents: dict[str, AgentCost]
    parallel: bool
    """Whether agents work at the same time (each in its own process) or one after the other."""
    verify: float
    exchange: float
    """Building training rows, and moving responses and rows."""
    ahead: bool = False
    """Whether agents draw while verifiers work (`sample_ahead`)."""

    @property
    def sample(self) -> float:
        """Of all agents, with gathering the weights and handing them to engines."""
        return self._all([a.sample + a.gather + a.sync + a.score for a in self.agents.values()])

    @property
    def update(self) -> float:
        """Of all agents, with the traffic between their ranks."""
        return self._all([agent.update + agent.shard for agent in self.agents.values()])

    @property
    def loop(self) -> float:
        """Between sampling and updates, as far as nobody draws meanwhile."""
        return self.exchange + (max(0.0, self.verify - self.sample) if self.ahead else self.verify)

    @property
    def total(self) -> float:
        """The step."""
        return self.sample + self.loop + self.update

    def _all(self, seconds: list[float]) -> float:
        return max(seconds) if self.parallel else sum(seconds)


def forecast(
    recipe: Recipe,
    facts: dict[str, ModelFacts],
    lengths: Lengths,
    hardware: Hardware,
    verifier: str,
    engines: Mapping[str, EnginePlan] | None = None,
) -> StepCost:
    """What one step costs; `engines` draw the responses of the agents that have some."""
    names = [agent.name for agent in recipe.agents if agent.has_model]
    engines = engines or {}
    loads = {name: workload(recipe, name, lengths, hardware.width) for name in names}
    loads = on_all_devices(loads, engines)
    agents = {}
    for name, load in loads.items():
        link = _link(recipe, name, hardware)
        agents[name] = _agent_cost(facts[name], load, hardware, link)
        if name in engines:
            cost = engine_cost(facts[name], load, engines[name], hardware, link)
            agents[name] = replace(agents[name], sample=cost.generate, sync=cost.sync, score=cost.score)
    responses = sum(load.responses for load in loads.values())
    building = sum(loop_seconds(load, hardware.loop) for load in loads.values())
    on_ray = recipe.runtime.name == "ray"
    moved = sum(cost.loop_bytes for cost in agents.values()) if on_ray else 0.0
    return StepCost(
        agents=agents,
        parallel=on_ray
        and not recipe.runtime.share_devices
        and not any(plan.in_turns for plan in engines.values()),
        verify=responses * SECONDS_PER_RESPONSE.get(verifier, SECONDS_PER_RESPONSE["math"]),
        exchange=building + moved / hardware.network,
        ahead=recipe.sample_ahead is not None,
    )


def loop_seconds(load: Workload, cost: LoopCost) -> float:
    """Building one learner's training rows."""
    return trained_responses(load) * cost.per_response + load.trained_tokens * cost.per_token


def _link(recipe: Recipe, name: str, hardware: Hardware) -> float:
    """Bytes per second between the agent's ranks; over the network if they are on several machines."""
    return hardware.link if recipe.agent(name).resources.nodes == 1 else hardware.network


def _agent_cost(facts: ModelFacts, load: Workload, hardware: Hardware, link: float) -> AgentCost:
    elsewhere = (load.ranks - 1) / load.ranks
    weights = facts.parameters * load.width * elsewhere
    gradients = 4 * facts.trained * elsewhere
    during_updates = micro_batches(load) * (2 * weights + gradients)
    drawn = load.responses * load.response_tokens
    return AgentCost(
        sample=hardware.sample.seconds(sampling(facts, load)),
        gather=weights / link,
        update=hardware.update.seconds(updating(facts, load)),
        shard=during_updates / link,
        rank_bytes=weights + during_updates,
        loop_bytes=drawn * BYTES_PER_DRAWN_TOKEN + load.trained_tokens * BYTES_PER_TRAINED_TOKEN,
    )


def forecast_tables(
    recipe: Recipe,
    plans: Sequence[AgentPlan],
    cost: StepCost,
    engines: Mapping[str, EnginePlan] | None = None,
) -> list[TextTable]:
    """A table of the agents, one of their engines if there are any, and one of the whole step."""
    engines = engines or {}
    agents = [
        (
            plan.name,
            str(engines[plan.name].devices if plan.name in engines else plan.ranks),
            *(f"{seconds:.3g}" for seconds in (agent.sample, agent.gather, agent.update, agent.shard)),
            in_units(agent.rank_bytes),
            in_units(agent.loop_bytes),
            _memory(plan, engines.get(plan.name)),
        )
        for plan, agent in ((plan, cost.agents[plan.name]) for plan in plans)
    ]
    seconds = {
        "sample": cost.sample,
        "verify": cost.verify,
        "exchange": cost.exchange,
        "update": cost.update,
        "step": cost.total,
    }
    step = [(name, f"{value:.3g}", f"{value / cost.total:.0%}") for name, value in seconds.items()]
    hours = recipe.steps * cost.total / 3600
    order = "at the same time" if cost.parallel else "one after the other"
    header = ("agent", "ranks", "sample", "gather", "update", "shard", "to a rank", "to the loop", "memory")
    return [
        TextTable("Seconds of one step; bytes moved in it; memory of each device", header, agents),
        *_engine_tables(cost, engines),
        TextTable(
            f"The step, agents {order}; {recipe.steps} steps take {hours:.3g} hours",
            ("phase", "seconds", "share"),
            step,
        ),
    ]


def _memory(plan: AgentPlan, engine: EnginePlan | None) -> str:
    if engine is not None:
        return in_units(engine.memory)
    return in_units(plan.memory.kept + plan.memory.passing) if plan.memory else "?"


def _engine_tables(cost: StepCost, engines: Mapping[str, EnginePlan]) -> list[TextTable]:
    """What engines add to an agent's step; nothing without any."""
    if not engines:
        return []
    header = (
        "agent",
        "engines",
        "GPUs each",
        "responses at once",
        "generate",
        "sync",
        "score",
        "to CPU memory",
    )
    rows = [
        (
            name,
            str(plan.devices // plan.split),
            str(plan.split),
            str(plan.rows),
            *(f"{seconds:.3g}" for seconds in (agent.sample, agent.sync, agent.score)),
            in_units(plan.moved),
        )
        for name, plan in engines.items()
        for agent in (cost.agents[name],)
    ]
    where = "in turns with training" if any(plan.in_turns for plan in engines.values()) else "beside training"
    return [TextTable(f"vLLM, {where}: seconds of one step", header, rows)]
