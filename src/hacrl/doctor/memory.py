"""How much memory an agent needs, about; `docs/recipe.md` has the formulas."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch

from hacrl.config import Recipe
from hacrl.doctor.models import ModelFacts

KEPT_PER_LAYER = (12, 4)
"""Numbers kept for the backward pass per token and layer: so many times hidden and feed-forward size."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    weights: int
    gradients: int
    moments: int
    reference: int
    cache: int
    """Keys and values while sampling."""
    activations: int
    """While updating."""

    @property
    def kept(self) -> int:
        """What is there all the time."""
        return self.weights + self.gradients + self.moments + self.reference

    @property
    def passing(self) -> int:
        """What comes and goes, at its largest."""
        return max(self.cache, self.activations)


def estimate(recipe: Recipe, name: str, facts: ModelFacts, device: str, longest_prompt: int) -> Memory:
    """The agent's memory on a device, every response at its full length."""
    width = 4 if device == "cpu" else 2
    whole = recipe.agent(name).lora is None
    row = longest_prompt + recipe.sampling.max_new_tokens
    row = min(row, facts.context or row)
    rows = min(recipe.sampling.max_rows, recipe.prompts_per_step * recipe.samples_of(name))
    return Memory(
        weights=width * facts.parameters + (4 * facts.trained if width == 2 else 0),
        gradients=width * facts.trained,
        moments=8 * facts.trained,
        reference=width * facts.parameters if recipe.optimiser.kl and whole else 0,
        cache=rows * row * 2 * facts.layers * facts.key_value * width,
        activations=_activations(recipe, facts, _micro_batch(recipe, row), width),
    )


def _micro_batch(recipe: Recipe, row: int) -> int:
    """Tokens computed at once: a mini-batch, the token budget, or a single row that is longer than it."""
    prompts = math.ceil(recipe.prompts_per_step / recipe.updates.mini_batches)
    samples = max(recipe.samples_of(agent.name) for agent in recipe.agents)
    return max(row, min(recipe.updates.tokens_per_micro_batch, prompts * samples * row))


def _activations(recipe: Recipe, facts: ModelFacts, tokens: int, width: int) -> int:
    per_layer = KEPT_PER_LAYER[0] * facts.hidden + KEPT_PER_LAYER[1] * facts.feed_forward
    kept = facts.layers * per_layer
    if recipe.updates.gradient_checkpointing:
        kept = facts.layers * facts.hidden + per_layer
    return tokens * (kept * width + 8 * facts.vocabulary)


def memory_of(device: str) -> int:
    """All memory of the machine or of a GPU, in bytes."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(torch.cuda.get_device_properties(device).total_memory)


def in_units(size: float) -> str:
    """Bytes for people: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
