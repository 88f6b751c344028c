"""Memory of agents that take turns on the same GPUs, each sharded over all of them and with vLLM beside it.

As the authors ran their pairs: while an agent trains, its engine is asleep and the other agents are in CPU
memory; while it generates, its own training state is there too. `docs/paper.md` has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.analysis.doctor.examination import UNKNOWN_PROMPT, AgentPlan, Diagnosis, gpus_needed
from hacrl.analysis.doctor.memory import Memory
from hacrl.analysis.doctor.models import ModelFacts

USABLE = 0.9
"""Of a GPU's memory: libraries and fragmentation take the rest."""
MOST_FOR_WEIGHTS = 0.3
"""Of a GPU's memory for an engine's weights: larger models are split over several GPUs."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one agent needs on each of the GPUs, and of the machine's CPU memory."""

    name: str
    training: int
    """Bytes while it trains, its engine asleep."""
    handing_over: int
    """Bytes while new weights go to the engine: its shard, the engine's weights, and one whole tensor."""
    engine: int
    """Bytes of the engine's weights while it generates; the training state is in CPU memory."""
    row: int
    """Bytes of the keys and values of one response at full length, on each GPU of its engine."""
    rows: int
    """Responses at full length for which there is room, on each GPU of its engine."""
    tensor_parallel: int
    """GPUs that one engine's weights are split over: the fewest that leave room for its cache."""
    offloaded: int
    """Bytes of CPU memory for its training state, all GPUs together."""

    @property
    def needed(self) -> int:
        """The most on a GPU at any time, with room for one response."""
        return max(self.training, self.handing_over, self.engine + self.row)


def turns(found: Diagnosis) -> list[Turn]:
    """For every agent with known sizes; empty unless the agents run on the GPUs of a cluster."""
    gpus = round(gpus_needed(found))
    if not gpus or any(not agent.gpus for agent in found.agents):
        return []
    return [
        _turn(found, agent, agent.memory, agent.facts, gpus)
        for agent in found.agents
        if agent.memory and agent.facts
    ]


def _turn(found: Diagnosis, agent: AgentPlan, memory: Memory, facts: ModelFacts, gpus: int) -> Turn:
    width = 4 if agent.precision.dtype == "float32" else 2
    weights = width * facts.parameters
    sharded = memory.weights + memory.gradients + memory.moments + memory.reference + memory.critic
    state = sharded * agent.ranks
    in_half = 2 * facts.trained if width == 2 else 0
    per_row = memory.activations - in_half // agent.ranks  # the same however many ranks there are
    sizes = [size for size in range(1, gpus + 1) if gpus % size == 0]
    fitting = [size for size in sizes if weights / size <= MOST_FOR_WEIGHTS * found.gpu_memory]
    parallel = fitting[0] if fitting else gpus
    longest = found.recipe.sampling.max_new_tokens + (found.recipe.max_prompt_tokens or UNKNOWN_PROMPT)
    row = min(longest, facts.context or longest) * 2 * facts.layers * facts.key_value * width // parallel
    engine = weights // parallel
    whole = width * facts.vocabulary * facts.hidden  # the largest tensor
    return Turn(
        name=agent.name,
        training=(state + in_half) // gpus + per_row,
        handing_over=weights // gpus + engine + whole,
        engine=engine,
        row=row,
        rows=max(0, int((USABLE * found.gpu_memory - engine) // row)),
        tensor_parallel=parallel,
        offloaded=state - memory.gradients * agent.ranks,
    )
