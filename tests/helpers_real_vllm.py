"""What the tests of the real vLLM share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from hacrl.agents.policy import Policy
from hacrl.recipe.agent_settings import LoraSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from hacrl.types import Rollout
from helpers_agents import CONFIGS, tiny_tokenizer

BOUND = 1e-4
"""Largest difference of one token's log-prob in fp32; docs/vllm.md has what was measured."""
GREEDY = SamplingSettings(max_new_tokens=40).as_greedy()
SMALL_CACHE = VllmSettings(cache_gigabytes=0.05)
HELPERS = {"PYTHONPATH": str(Path(__file__).parent)}
TRAIN = """
import json
from pathlib import Path
from helpers_train import run
run(json.loads(Path("recipe.json").read_text()), Path("run"))
"""
"""A run in a process of its own: where vLLM was imported, Ray was too, before hacrl could set it up."""


def network(architecture: str) -> PreTrainedModel:
    """As small as vLLM's attention on CPU allows: 32 numbers per head."""
    config = copy.deepcopy(CONFIGS[architecture])
    config.hidden_size, config.head_dim = 128, 32
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def agent(
    architecture: str,
    engine: VllmSettings | None = None,
    lora: LoraSettings | None = None,
    stop: tuple[str, ...] = (),
) -> Policy:
    """Named ada; the same weights with every engine, which reads text only if it is started with `stop`."""
    optimiser = OptimiserSettings(learning_rate=1e-2, kl=0.0)
    model = network(architecture)
    return Policy(
        "ada",
        model,
        tiny_tokenizer(),
        optimiser=optimiser,
        lora=lora,
        engine=engine,
        sampling=SamplingSettings(max_rows=64, stop=stop),
    )


def largest_difference(rollouts: Sequence[Rollout]) -> float:
    """Of one token's log-prob, between the engine and the trained model."""
    return max(rollout.engine.difference for rollout in rollouts if rollout.engine)
