"""Costs of arithmetic, memory traffic and messages by device: from published peaks or from a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hacrl.analysis.doctor.models import ModelFacts, look_at
from hacrl.analysis.simulate.work import Lengths, Work, Workload, sampling, updating, workload
from hacrl.recipe import Recipe, saved_recipe
from hacrl.runs.reader import RunReader

Metrics = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a phase: the sum over all kinds of work, without overlap."""

    per_flop: float
    per_byte: float
    per_pass: float
    per_token: float = 0.0

    def seconds(self, work: Work) -> float:
        """Seconds for some work."""
        computing = work.flops * self.per_flop + work.bytes * self.per_byte
        return computing + work.passes * self.per_pass + work.tokens * self.per_token

    def times(self, factor: float) -> Cost:
        """All costs multiplied by a factor."""
        costs = (self.per_flop, self.per_byte, self.per_pass, self.per_token)
        return Cost(*(factor * cost for cost in costs))


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Seconds of the loop: advantages, re-tokenising peers' texts, building training rows."""

    per_response: float
    per_token: float
    """Of responses trained on, once for each learner."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of device and what connects them."""

    name: str
    origin: str
    """Where the figures come from, as text."""
    sample: Cost
    update: Cost
    link: float
    """Bytes per second that a rank receives from the others of its agent."""
    network: float
    """Bytes per second between the agents' processes and the loop."""
    loop: LoopCost
    width: int
    """Bytes per number in computations."""
    engine: Cost | None = None
    """Of vLLM, whose passes are steps of the engine; None: not known."""
    host: float = float("inf")
    """Bytes per second between a device and CPU memory, in one direction."""


ARITHMETIC_REACHED, MEMORY_REACHED, LINK_REACHED = 0.5, 0.7, 0.7
"""Assumed shares of the published peaks."""
LAYER_START = 100e-6
"""Assumed seconds to launch the kernels of one layer, one after the other."""
ENGINE_STEP = 2e-3
"""Assumed seconds of vLLM's scheduler, sampler and CUDA graph in a step of the engine."""
ENGINE_TOKEN = 20e-6
"""Assumed seconds in which vLLM's process takes a token and its log-prob from the GPU."""
LOOP = LoopCost(per_response=117e-6, per_token=0.9e-6)
"""Of one core, measured: `hacrl simulate --check` prints it."""


def _gpu(name: str, flops: float, memory: float, link: float, network: float, host: float) -> Hardware:
    """From the published peaks of a GPU, in bytes and operations per second."""
    cost = Cost(1 / (ARITHMETIC_REACHED * flops), 1 / (MEMORY_REACHED * memory), LAYER_START)
    origin = (
        f"assumed, not measured: {ARITHMETIC_REACHED:.0%} of the published peak in arithmetic, "
        f"{MEMORY_REACHED:.0%} in memory and links, {1e6 * LAYER_START:.0f} microseconds to start a layer, "
        f"{1e3 * ENGINE_STEP:.0f} milliseconds for a step of vLLM and {1e6 * ENGINE_TOKEN:.0f} microseconds "
        "for each of its tokens"
    )
    return Hardware(
        name,
        origin,
        cost,
        cost,
        LINK_REACHED * link,
        LINK_REACHED * network,
        LOOP,
        width=2,
        engine=replace(cost, per_pass=ENGINE_STEP, per_token=ENGINE_TOKEN),
        host=LINK_REACHED * host,
    )


GPUS = {
    "h100": _gpu("H100 SXM, bf16", flops=989e12, memory=3.35e12, link=450e9, network=50e9, host=64e9),
    "a100": _gpu("A100 SXM 80 GB, bf16", flops=312e12, memory=2.04e12, link=300e9, network=25e9, host=32e9),
}
"""Published peaks: dense bf16, HBM, NVLink and PCIe in one direction; a network of 400 and 200 Gbit/s."""


def scaled_to(directory: Path, prompt_tokens: float, hardware: Hardware) -> Hardware:
    """The hardware with each phase's costs scaled to the seconds measured in a run."""
    run = RunReader(directory)
    recipe, metrics = saved_recipe(run), run.metrics
    sample = update = predicted_sample = predicted_update = 0.0
    for agent in (agent for agent in recipe.agents if agent.trains):
        if agent.engine is not None:
            raise ValueError(
                f"--from {directory}: vLLM drew for {agent.name}, whose costs are not scaled yet"
            )
        facts = _facts(agent.model, directory)
        load = _load(recipe, agent.name, prompt_tokens, metrics, hardware.width)
        sample += _median(metrics, f"time/sample/{agent.name}", directory)
        update += _median(metrics, f"time/update/{agent.name}", directory)
        predicted_sample += hardware.sample.seconds(sampling(facts, load))
        predicted_update += hardware.update.seconds(updating(facts, load))
    factors = sample / predicted_sample, update / predicted_update
    return replace(
        hardware,
        origin=f"{hardware.origin}; times {factors[0]:.2f} in sampling and {factors[1]:.2f} in updates, "
        f"as measured in {directory}",
        sample=hardware.sample.times(factors[0]),
        update=hardware.update.times(factors[1]),
    )


def _facts(model: str, directory: Path) -> ModelFacts:
    facts = look_at(model, None)
    if facts is None:
        raise ValueError(
            f"--from {directory}: the sizes of its model {model!r} are unknown: it is not on this machine"
        )
    return facts


def _load(recipe: Recipe, name: str, prompt_tokens: float, metrics: Metrics, width: int) -> Workload:
    """The agent's measured work in a step: actual lengths, and only tokens that had a gradient."""
    mean, longest, trained = (
        _median(metrics, f"agent/{name}/{key}")
        for key in ("completions/mean_length", "completions/max_length", "trained_tokens")
    )
    load = workload(recipe, name, Lengths(prompt_tokens, mean, longest), width)
    return replace(load, trained_tokens=trained)


def _median(metrics: Metrics, key: str, where: Path | str = "the run") -> float:
    values = [line[key] for line in metrics if key in line]
    if not values:
        raise ValueError(f"{where} has no metric {key}: was it stopped before its first step?")
    return statistics.median(values)
