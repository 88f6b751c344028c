"""Sizes of a model, without loading its weights."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from hacrl.agents.errors import AgentError
from hacrl.agents.loading import explain_model_errors
from hacrl.agents.model_files import base_model, check_directory
from hacrl.analysis.doctor.published import published_config
from hacrl.recipe import LoraSettings
from hacrl.recipe.problems import nearest
from hacrl.tasks.toy_models import models as toy_models

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The sizes that memory and time depend on."""

    parameters: int
    trained: int
    """Parameters that are trained: all, or those of the adapters."""
    layers: int
    hidden: int
    feed_forward: int
    query: int
    """Numbers in one layer's queries for one token."""
    key_value: int
    """Numbers in one layer's keys for one token; its values are as many."""
    vocabulary: int
    context: int | None
    linear: int = 0
    """Weights of linear layers, without the head: those that `lora.base_bits` quantises."""


def look_at(model: str, lora: LoraSettings | None) -> ModelFacts | None:
    """None if the sizes are unknown: an unknown hub model, a toy model not made yet, no attention layers.

    Raises `ValueError` or `AgentError` when the model cannot be used.
    """
    config = config_of(model)
    if config is None or not hasattr(config.get_text_config(), "num_attention_heads"):
        return None
    with explain_model_errors(model):
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
        return _facts(network, lora)


def config_of(model: str) -> Any:
    """The model's configuration: the one on this machine, or a published one; None if there is none."""
    return local_config(model) or published_config(model)


def is_elsewhere(model: str) -> bool:
    """Whether the model is on the hub and has not been downloaded."""
    return not model.startswith("toy:") and local_config(model) is None


def local_config(model: str) -> Any:
    """The model's configuration if it is on this machine."""
    directory = _directory(model)
    source = base_model(directory) if directory else model
    try:
        with explain_model_errors(model):
            return AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    except AgentError as error:
        if directory is None and isinstance(error.__cause__, OSError):
            return None
        raise


def _directory(model: str) -> Path | None:
    """The model's directory on this machine, if it has one."""
    kind, _, name = model.partition(":")
    if kind == "toy":
        return _toy_directory(name)
    directory = Path(model)
    if directory.is_dir():
        check_directory(directory)
        return directory
    if model.startswith((".", "/", "~")) or not HUB_ID.fullmatch(model):
        raise ValueError(f"{model!r} is neither a directory, nor toy:NAME, nor a hub id")
    return None


def _toy_directory(name: str) -> Path | None:
    """Where the toy model is cached; each keeps the recipe it was made with."""
    kind = name.partition("@")[0]
    if kind not in toy_models.AGENTS:
        known = ", ".join(toy_models.AGENTS)
        raise ValueError(
            f"there is no toy model {kind!r}{nearest(kind, toy_models.AGENTS)} (there are {known})"
        )
    recipe = json.loads(json.dumps(toy_models.describe(toy_models.find(name))))
    for found in toy_models.cache_directory().glob("*/toy_model.json"):
        if json.loads(found.read_text()) == recipe:
            return found.parent
    return None


def _facts(network: Any, lora: LoraSettings | None) -> ModelFacts:
    config = network.config.get_text_config()
    heads = config.num_attention_heads
    parameters = network.num_parameters()
    hidden = config.hidden_size
    head = getattr(config, "head_dim", None) or hidden // heads
    context = getattr(config, "max_position_embeddings", None)
    return ModelFacts(
        parameters=parameters,
        trained=_adapter_parameters(network, lora) if lora else parameters,
        layers=config.num_hidden_layers,
        hidden=hidden,
        feed_forward=getattr(config, "intermediate_size", None) or 4 * hidden,
        query=heads * head,
        key_value=(getattr(config, "num_key_value_heads", None) or heads) * head,
        vocabulary=config.vocab_size,
        context=int(context) if context else None,
        linear=sum(layer.weight.numel() for layer in _linear_layers(network).values()),
    )


def _adapter_parameters(network: Any, lora: LoraSettings) -> int:
    """rank x (inputs + outputs) for every adapted layer."""
    targets = lora.target_modules
    total = 0
    for name, layer in _linear_layers(network).items():
        last = name.rsplit(".", 1)[-1]
        if targets == "all-linear" or last in ((targets,) if isinstance(targets, str) else targets):
            total += lora.rank * sum(layer.weight.shape)
    return total


def _linear_layers(network: Any) -> dict[str, Any]:
    """All but the head, by name."""
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not network.get_output_embeddings()
    }
