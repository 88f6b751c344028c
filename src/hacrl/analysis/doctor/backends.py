"""Which backends an agent is going to get: tried on a small random model of its architecture."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig

from hacrl.agents.backends.body import body_of
from hacrl.agents.backends.choice import choose_backends
from hacrl.agents.loading import with_adapters
from hacrl.analysis.doctor.examination import Diagnosis
from hacrl.analysis.doctor.models import config_of
from hacrl.recipe import AgentSettings, Recipe
from hacrl.recipe.agent_settings import VllmSettings

WIDE = 400_000_000
"""Parameters of the small model; up to here its layers are as wide as the real one's."""
HEAD_WIDTH, FEED_FORWARD = 16, 64
"""Of a wider one."""
ABSENT = "backends are not known until the model is on this machine"
UNKNOWN = "backends are not known until the model is loaded"
SMALL = {
    "vocab_size": 128,
    "sliding_window": 8,
    "chunk_size": 16,  # of Mamba-2: shorter sequences are padded to it, which takes minutes with a wide model
    "mamba_chunk_size": 16,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """Names of the backends, and why faster ones are not used."""

    decode: str
    train: str
    refused: dict[str, str]
    """Name -> reason."""

    def __str__(self) -> str:
        used = f"decodes with {self.decode} and trains with {self.train}"
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.refused.items():
            by_reason.setdefault(reason, []).append(name)
        why = "; ".join(f"not with {', '.join(names)}: {reason}" for reason, names in by_reason.items())
        return f"{used}; {why}" if why else used


def backend_lines(found: Diagnosis) -> list[str]:
    """What every agent decodes and trains with; agents with the same line share it."""
    names: dict[str, list[str]] = {}
    for plan in found.agents:
        if config_of(plan.model) is None:
            line = ABSENT
        else:
            line = str(planned_backends(found.recipe, found.recipe.agent(plan.name), plan.ranks) or UNKNOWN)
        names.setdefault(line, []).append(plan.name)
    return [f"{', '.join(agents)}: {line}" for line, agents in names.items()]


def planned_backends(recipe: Recipe, agent: AgentSettings, ranks: int = 1) -> BackendPlan | None:
    """None where it cannot be told without the model itself."""
    config = config_of(agent.model)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = _small_model(config)
            if agent.lora and agent.lora.base_bits:
                _quantise(model)
            if agent.lora:
                model = with_adapters(model, agent.lora, seed=0).get_base_model()
            found = choose_backends(model, recipe.updates.gradient_checkpointing, sharded=ranks > 1)
    except Exception:  # a made-up size may break any architecture; the real model decides
        return None
    decode = _engine(agent.engine, ranks) if agent.engine else found.names["decode"]
    return BackendPlan(decode, found.names["train"], found.refused)


def _engine(engine: VllmSettings, ranks: int) -> str:
    """Which vLLM, and how many of it."""
    if engine.url is not None:
        return f"the vLLM server at {engine.url}"
    if ranks == 1:
        return "vLLM"
    size = engine.tensor_parallel
    copies = f"{ranks // size} engines of vLLM side by side" if ranks > size else "one engine of vLLM"
    return copies if size == 1 else f"{copies}, split over {size} ranks (tensor parallel)"


def _small_model(config: Any) -> Any:
    """As few layers as show every type of them."""
    small: PretrainedConfig = copy.deepcopy(config)
    text = small.get_text_config()
    layers = text.num_hidden_layers
    kinds = getattr(text, "layer_types", None) or []
    needed = max([2, *(kinds.index(kind) + 1 for kind in set(kinds))])
    for name, value in vars(text).items():
        if isinstance(value, list) and len(value) == layers:
            setattr(text, name, value[:needed])
    text.num_hidden_layers = min(layers, needed)
    _set_where_present(text, SMALL)
    for name in small.sub_configs:
        if getattr(small, name) is not text:
            _set_where_present(getattr(small, name), {"num_hidden_layers": 1})
    with torch.device("meta"):
        wide = AutoModelForCausalLM.from_config(small).num_parameters() > WIDE
    if wide:
        widths = {"hidden_size": HEAD_WIDTH * text.num_attention_heads, "head_dim": HEAD_WIDTH}
        _set_where_present(text, widths | {"intermediate_size": FEED_FORWARD})
    return AutoModelForCausalLM.from_config(small, dtype=torch.float32).eval()


def _set_where_present(config: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if getattr(config, name, None) is not None:
            setattr(config, name, value)


class _FourBit(nn.Linear):
    """Stands for a layer in 4 bits: the type is all that the choice of backends looks at."""


def _quantise(model: Any) -> None:
    for module in body_of(model).modules():
        if type(module) is nn.Linear:
            module.__class__ = _FourBit
