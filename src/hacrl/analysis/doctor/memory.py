"""An estimate of an agent's memory; `docs/recipe.md` has the formulas."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hacrl.agents.backends.head import KEPT_BYTES, LOGITS_AT_ONCE
from hacrl.analysis.doctor.models import ModelFacts
from hacrl.recipe import Recipe
from hacrl.recipe.agent_settings import VllmSettings

KEPT_PER_LAYER = (12, 4)
"""Numbers kept for the backward pass per token and layer, in multiples of hidden and feed-forward size."""
BYTES_IN_4_BITS = 0.5 + 4 / 64
"""Per weight: every block of 64 has a scale in fp32."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each of the agent's devices."""

    weights: int
    shared: int
    """Of the weights: frozen ones, which agents of the same model and dtype in this process hold once."""
    gradients: int
    moments: int
    reference: int
    critic: int
    """A second model, without weights that it shares, with gradients and moments of its own; 0: none."""
    engine: int
    """vLLM's own weights and cache; 0 with the built-in sampler."""
    gathered: int
    """The other ranks' weights, gathered for sampling; 0 for an agent in one process."""
    cache: int
    """Keys and values while sampling."""
    activations: int
    """While updating, with the gradients that are being computed in half precision."""

    @property
    def kept(self) -> int:
        """Memory in use all the time."""
        trained = self.weights + self.gradients + self.moments
        return trained + self.reference + self.critic + self.engine

    @property
    def passing(self) -> int:
        """Peak of what is only allocated while sampling or updating."""
        return max(self.gathered + self.cache, self.activations)


def estimate(recipe: Recipe, name: str, facts: ModelFacts, dtype: str, longest_prompt: int) -> Memory:
    """The agent's memory on each of its devices, every response at its full length.

    In half precision, weights have a master copy in fp32. Gradients are added up in fp32; those of sharded
    weights are in half precision until the backward pass is over.
    """
    agent, width = recipe.agent(name), 4 if dtype == "float32" else 2
    ranks = ranks_of(recipe, name)
    row = longest_prompt + recipe.sampling.max_new_tokens
    row = min(row, facts.context or row)
    rows = min(recipe.sampling.max_rows, math.ceil(recipe.prompts_each / ranks) * recipe.samples_of(name))
    masters = 4 * facts.trained if width == 2 else 0
    in_half = 2 * facts.trained if width == 2 and ranks > 1 else 0
    base = width * facts.parameters
    if agent.lora and agent.lora.base_bits:
        base += round((BYTES_IN_4_BITS - width) * facts.linear)
    weights = base + masters
    gradients, moments = 4 * facts.trained, 8 * facts.trained
    critic = recipe.method.critic is not None and agent.trains
    has_copy = recipe.optimiser.kl > 0 and agent.lora is None and agent.trains
    reference = width * facts.parameters if has_copy else 0
    frozen = base if agent.lora else 0
    inside = agent.engine if agent.engine and agent.engine.url is None else None
    return Memory(
        weights=weights // ranks,
        shared=frozen if recipe.runtime.name == "local" else 0,
        gradients=gradients // ranks,
        moments=moments // ranks,
        reference=reference // ranks,
        critic=(weights - (frozen if ranks == 1 else 0) + gradients + moments) // ranks if critic else 0,
        engine=_engine(inside, width * facts.parameters) if inside else 0,
        gathered=width * facts.parameters * (ranks - 1) // ranks,
        cache=0 if agent.engine else rows * row * 2 * facts.layers * facts.key_value * width,
        activations=_activations(recipe, facts, row, width, critic) + in_half // ranks if agent.trains else 0,
    )


def _engine(engine: VllmSettings, weights: int) -> int:
    """vLLM's own weights, whole on every rank unless it is split over several, and its cache."""
    return weights // engine.tensor_parallel + round(1e9 * engine.cache_gigabytes)


def ranks_of(recipe: Recipe, name: str) -> int:
    """Processes that the agent is sharded over, each with its own device."""
    return recipe.agent(name).resources.ranks if recipe.runtime.name == "ray" else 1


def _activations(recipe: Recipe, facts: ModelFacts, row: int, width: int, critic: bool) -> int:
    tokens, per_layer = _micro_batch(recipe, row), kept_per_layer(facts)
    whole = facts.layers * per_layer
    kept = facts.layers * facts.hidden + per_layer if recipe.updates.gradient_checkpointing else whole
    logits = tokens * facts.vocabulary
    in_blocks = min(width * logits, KEPT_BYTES) if logits > LOGITS_AT_ONCE else 0
    own = tokens * kept * width + 8 * min(logits, LOGITS_AT_ONCE) + in_blocks
    # A critic has no logits, but it does not recompute activations either.
    return max(own, tokens * whole * width) if critic else own


def _micro_batch(recipe: Recipe, row: int) -> int:
    """Tokens computed at once: a mini-batch, at most the token budget, at least one row."""
    prompts = math.ceil(recipe.prompts_per_step / recipe.updates.mini_batches)
    samples = max(recipe.samples_of(agent.name) for agent in recipe.agents)
    return max(row, min(recipe.updates.tokens_per_micro_batch, prompts * samples * row))


def kept_per_layer(facts: ModelFacts) -> int:
    """Numbers of activations per token."""
    return KEPT_PER_LAYER[0] * facts.hidden + KEPT_PER_LAYER[1] * facts.feed_forward


def memory_of(device: str) -> int:
    """Total memory of the machine or of a GPU, in bytes."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(torch.cuda.get_device_properties(device).total_memory)


def cluster_gpu_memory() -> int:
    """Assumed bytes of a cluster's GPU: those of this machine's GPU, or 80 GB (A100, H100)."""
    return memory_of("cuda") if torch.cuda.is_available() else 80 * 10**9


def in_units(size: float) -> str:
    """Bytes as text: 1.5 GB."""
    return rounded(size, (" B", " kB", " MB", " GB", " TB"))


def rounded(number: float, units: Sequence[str] = ("", "k", "M", "B", "T")) -> str:
    """Three digits and a unit: 135M."""
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g}{units[power]}"
