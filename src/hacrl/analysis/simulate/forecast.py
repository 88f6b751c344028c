"""A recipe's step on some hardware: seconds by phase, bytes over the network, memory of every device."""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.analysis.doctor.memory import ranks_of
from hacrl.analysis.doctor.models import ModelFacts
from hacrl.analysis.simulate.hardware import Hardware, LoopCost
from hacrl.analysis.simulate.work import Workload, micro_batches, sampling, taught_responses, updating
from hacrl.recipe import Recipe

BYTES_PER_DRAWN_TOKEN = 17.0
BYTES_PER_TAUGHT_TOKEN = 14.0
"""Of long responses from a large vocabulary; `hacrl bench --runtime` measures those of short ones."""
SECONDS_PER_ANSWER = {"math": 1 / 412, "exact": 1 / 282_821}
"""Measured on two cores: `hacrl bench --verifiers` prints both. Other verifiers are counted as `math`."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and responses, on average; the longest response ends the sampling."""

    prompt: float
    response: float
    longest: float


@dataclass(frozen=True, slots=True)
class AgentCost:
    """One agent's step: seconds by phase, and bytes that its ranks and its process receive."""

    sample: float
    gather: float
    """Fetching all weights before sampling: the new weights of the last updates."""
    update: float
    shard: float
    """Fetching weights and adding up gradients during updates."""
    rank_bytes: float
    """Received by each rank from the others of the agent."""
    loop_bytes: float
    """Between the agent's process and the loop, both ways."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """A whole step in seconds. Agents with processes of their own work at the same time, others in turns."""

    agents: dict[str, AgentCost]
    together: bool
    verify: float
    exchange: float
    """Building training rows, and moving responses and rows."""

    @property
    def sample(self) -> float:
        """Of all agents, with fetching the weights."""
        return self._all([agent.sample + agent.gather for agent in self.agents.values()])

    @property
    def update(self) -> float:
        """Of all agents, with what their ranks send each other."""
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
        return max(seconds) if self.together else sum(seconds)


def forecast(
    recipe: Recipe, facts: dict[str, ModelFacts], lengths: Lengths, hardware: Hardware, verifier: str
) -> StepCost:
    """What one step costs."""
    loads = {agent.name: workload(recipe, agent.name, lengths, hardware.width) for agent in recipe.agents}
    agents = {
        name: _agent_cost(facts[name], load, hardware, _link(recipe, name, hardware))
        for name, load in loads.items()
    }
    answers = sum(load.responses for load in loads.values())
    building = sum(loop_seconds(load, hardware.loop) for load in loads.values())
    on_ray = recipe.runtime.name == "ray"
    moved = sum(cost.loop_bytes for cost in agents.values()) if on_ray else 0.0
    return StepCost(
        agents=agents,
        together=on_ray and not recipe.runtime.share_devices,
        verify=answers * SECONDS_PER_ANSWER.get(verifier, SECONDS_PER_ANSWER["math"]),
        exchange=building + moved / hardware.network,
    )


def loop_seconds(load: Workload, cost: LoopCost) -> float:
    """Making one learner's training rows."""
    return taught_responses(load) * cost.per_response + load.taught_tokens * cost.per_token


def workload(recipe: Recipe, name: str, lengths: Lengths, width: int) -> Workload:
    """What the agent does in a step; every response is trained on."""
    peers = recipe.topology()[name]
    own = recipe.prompts_per_step * recipe.samples_of(name)
    learned = own + recipe.prompts_per_step * sum(recipe.samples_of(peer) for peer in peers)
    return Workload(
        prompts=recipe.prompts_per_step,
        prompt_tokens=lengths.prompt,
        responses=own,
        response_tokens=lengths.response,
        longest_response=lengths.longest,
        taught_tokens=learned * lengths.response,
        own_share=own / learned,
        sources=1 + len(peers),
        updates=recipe.updates_per_step(name),
        rows_at_once=recipe.sampling.max_rows,
        tokens_per_micro_batch=recipe.updates.tokens_per_micro_batch,
        kl=recipe.optimiser.kl > 0,
        checkpointing=recipe.updates.gradient_checkpointing,
        ranks=ranks_of(recipe, name),
        width=width,
    )


def _link(recipe: Recipe, name: str, hardware: Hardware) -> float:
    """Ranks on several machines wait for the network."""
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
        loop_bytes=drawn * BYTES_PER_DRAWN_TOKEN + load.taught_tokens * BYTES_PER_TAUGHT_TOKEN,
    )
