"""Predict a recipe's step on some hardware: seconds by phase, bytes moved, memory of every device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hacrl.analysis.doctor import AgentPlan
from hacrl.analysis.doctor.memory import in_units
from hacrl.analysis.doctor.models import ModelFacts
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


@dataclass(frozen=True, slots=True)
class StepCost:
    """A whole step in seconds."""

    agents: dict[str, AgentCost]
    parallel: bool
    """Whether agents work at the same time (each in its own process) or one after the other."""
    verify: float
    exchange: float
    """Building training rows, and moving responses and rows."""

    @property
    def sample(self) -> float:
        """Of all agents, with gathering the weights."""
        return self._all([agent.sample + agent.gather for agent in self.agents.values()])

    @property
    def update(self) -> float:
        """Of all agents, with the traffic between their ranks."""
        return self._all([agent.update + agent.shard for agent in self.agents.values()])

    @property
    def loop(self) -> float:
        """Between sampling and updates."""
        return self.verify + self.exchange

    @property
    def total(self) -> float:
        """The step."""
        return self.sample + self.loop + self.update

    def _all(self, seconds: list[float]) -> float:
        return max(seconds) if self.parallel else sum(seconds)


def forecast(
    recipe: Recipe, facts: dict[str, ModelFacts], lengths: Lengths, hardware: Hardware, verifier: str
) -> StepCost:
    """What one step costs."""
    names = [agent.name for agent in recipe.agents if agent.has_model]
    loads = {name: workload(recipe, name, lengths, hardware.width) for name in names}
    agents = {
        name: _agent_cost(facts[name], load, hardware, _link(recipe, name, hardware))
        for name, load in loads.items()
    }
    responses = sum(load.responses for load in loads.values())
    building = sum(loop_seconds(load, hardware.loop) for load in loads.values())
    on_ray = recipe.runtime.name == "ray"
    moved = sum(cost.loop_bytes for cost in agents.values()) if on_ray else 0.0
    return StepCost(
        agents=agents,
        parallel=on_ray and not recipe.runtime.share_devices,
        verify=responses * SECONDS_PER_RESPONSE.get(verifier, SECONDS_PER_RESPONSE["math"]),
        exchange=building + moved / hardware.network,
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


def forecast_tables(recipe: Recipe, plans: Sequence[AgentPlan], cost: StepCost) -> list[TextTable]:
    """A table of the agents, and one of the whole step."""
    agents = [
        (
            plan.name,
            str(plan.ranks),
            *(f"{seconds:.3g}" for seconds in (agent.sample, agent.gather, agent.update, agent.shard)),
            in_units(agent.rank_bytes),
            in_units(agent.loop_bytes),
            in_units(plan.memory.kept + plan.memory.passing) if plan.memory else "?",
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
        TextTable(
            f"The step, agents {order}; {recipe.steps} steps take {hours:.3g} hours",
            ("phase", "seconds", "share"),
            step,
        ),
    ]
