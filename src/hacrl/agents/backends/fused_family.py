"""The architectures that the fused backend knows, and how they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from hacrl.agents.backends.projection import supported


@dataclass(frozen=True, slots=True)
class Architecture:
    """Where a layer has norms (the names of the modules; None: nowhere), and what they do."""

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    after_mlp: str | None = None
    norm_offset: float = 0.0
    """Added to the weights of every norm."""


LLAMA = Architecture()
GEMMA = Architecture(
    after_attention="post_attention_layernorm",
    before_mlp="pre_feedforward_layernorm",
    after_mlp="post_feedforward_layernorm",
    norm_offset=1.0,
)
OLMO2 = Architecture(
    before_attention=None,
    after_attention="post_attention_layernorm",
    before_mlp=None,
    after_mlp="post_feedforward_layernorm",
)
FAMILY = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "smollm3": LLAMA,
    "gemma3_text": GEMMA,
    "olmo2": OLMO2,
}

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the input."""
NO_ROPE = "none"


def activation_name(config: Any) -> str:
    """Of the gate in the MLP."""
    name: str = getattr(config, "hidden_activation", None) or config.hidden_act
    return name


def layer_windows(config: Any) -> list[int | None]:
    """For each layer: how many tokens, itself included, a token attends to; None: all before it."""
    window: int | None = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return [window] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else None for kind in kinds]


def layer_ropes(config: Any) -> list[str]:
    """For each layer: the prefix of its frequencies' names in `rotary_emb`, or `NO_ROPE`."""
    if "rope_theta" not in config.rope_parameters:  # one set for each type of layer
        return [f"{kind}_" for kind in config.layer_types]
    used = getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
    return ["" if rotated else NO_ROPE for rotated in used]


def obstacle(model: PreTrainedModel) -> str | None:
    """What the fused backend does not support about this model's language model, if anything."""
    config = model.config.get_text_config()
    if config.model_type not in FAMILY:
        return f"the architecture {config.model_type!r}"
    ropes = config.rope_parameters
    for rope in [ropes] if "rope_theta" in ropes else ropes.values():
        if rope["rope_type"] not in STATIC_ROPE:
            return f"rope type {rope['rope_type']!r}"
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"}:
        return f"layers of type {', '.join(sorted(kinds - {'full_attention', 'sliding_attention'}))}"
    if activation_name(config) not in ACTIVATIONS:
        return f"the activation {activation_name(config)!r}"
    if getattr(config, "mlp_bias", False):
        return "biases in the MLP"
    if getattr(config, "attn_logit_softcapping", None) or getattr(
        config, "use_bidirectional_attention", None
    ):
        return "attention with a softcap or in both directions"
    linear = (module for module in model.get_decoder().modules() if hasattr(module, "in_features"))
    if not all(map(supported, linear)):
        return "quantised layers, or adapters other than plain LoRA without dropout"
    return None
