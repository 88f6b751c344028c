"""The Llama and Qwen family as a few torch functions over the model's own weight tensors.

Every layer runs on tokens laid end to end, [n, d]; only the `Attend` function knows which belong
together. Queries and keys keep the two halves of a rotary pair side by side, so that rotating them is one
complex product; both are permuted alike, so their dot products stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from hacrl.agents.backends.head import Head

FAMILY = ("llama", "qwen2", "qwen3")
STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies do not depend on the length of the input."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer number, queries [n, heads, w], keys and values [n, kv heads, w] -> output [n, heads * w]."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights, those that share an input fused."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    """[query and key heads, w]"""
    output: Tensor
    output_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class FusedNetwork:
    """Runs one model of the family, always with the current values of the model's own parameters."""

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False) -> None:
        reason = obstacle(model)
        if reason:
            raise ValueError(f"the fused backend does not support {reason}")
        config = model.config
        self._body = model.base_model
        self._embedding: nn.Embedding = model.get_input_embeddings()
        self.head = Head(model)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_width: int = self._body.layers[0].self_attn.head_dim
        self.scale: float = self._body.layers[0].self_attn.scaling
        self._eps: float = config.rms_norm_eps
        self._checkpointing = checkpointing
        self._rotary = torch.empty(0, 0)

    def weights(self) -> list[LayerWeights]:
        """All layers' weights, fused; gradients flow back to the model's parameters."""
        return [self._layer_weights(layer) for layer in self._body.layers]

    def rotary(self, positions: Tensor) -> Tensor:
        """Rotation of every query and key at these positions [n] -> complex [n, 1, w / 2]."""
        longest = int(positions.max()) + 1
        if longest > len(self._rotary):
            embedding = self._body.rotary_emb
            steps = torch.arange(2 * longest, device=self.device, dtype=torch.float32)
            angles = steps[:, None] * embedding.inv_freq.to(self.device, torch.float32)
            self._rotary = torch.polar(torch.full_like(angles, embedding.attention_scaling), angles)
        return self._rotary[positions][:, None]

    def run(
        self,
        ids: Tensor,
        rotary: Tensor,
        weights: Sequence[LayerWeights],
        attend: Attend,
        live: Tensor | None = None,
    ) -> Tensor:
        """Token ids [n] -> states [n, d] before the last norm; of the `live` tokens only, if given."""
        embedding = self._embedding
        hidden = F.embedding(ids, embedding.weight, embedding.padding_idx)
        for number, layer in enumerate(weights):
            arguments = (hidden, rotary, layer, attend, number, live if layer is weights[-1] else None)
            if self._checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(self._layer, *arguments, use_reentrant=False)
            else:
                hidden = self._layer(*arguments)
        return hidden

    def last_norm(self, hidden: Tensor) -> Tensor:
        """States after the last norm, which the head takes."""
        return self._norm(hidden, self._body.norm.weight)

    def _layer(
        self,
        hidden: Tensor,
        rotary: Tensor,
        layer: LayerWeights,
        attend: Attend,
        number: int,
        live: Tensor | None,
    ) -> Tensor:
        rows, rotated = len(hidden), self.heads + self.kv_heads
        normed = self._norm(hidden, layer.input_norm)
        mixed = F.linear(normed, layer.qkv, layer.qkv_bias).view(rows, -1, self.head_width)
        queries_keys = mixed[:, :rotated]
        if layer.qk_norm is not None:
            queries_keys = F.rms_norm(queries_keys, (self.head_width,), eps=self._eps) * layer.qk_norm
        queries_keys = rotate(queries_keys, rotary)
        attended = attend(
            number, queries_keys[:, : self.heads], queries_keys[:, self.heads :], mixed[:, rotated:]
        )
        if live is not None:
            hidden, attended = hidden.index_select(0, live), attended.index_select(0, live)
        hidden = hidden + F.linear(attended, layer.output, layer.output_bias)
        gate, up = F.linear(self._norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, -1)
        return hidden + F.linear(F.silu(gate) * up, layer.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._eps)

    def _layer_weights(self, layer: Any) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        width = self.head_width
        biased = q.bias is not None
        qk_norm = None
        if hasattr(attention, "q_norm"):
            q_norm, k_norm = (pairs_adjacent(n.weight, width) for n in (attention.q_norm, attention.k_norm))
            qk_norm = torch.cat([q_norm.expand(self.heads, -1), k_norm.expand(self.kv_heads, -1)])
        return LayerWeights(
            input_norm=layer.input_layernorm.weight,
            qkv=torch.cat([pairs_adjacent(q.weight, width), pairs_adjacent(k.weight, width), v.weight]),
            qkv_bias=torch.cat([pairs_adjacent(q.bias, width), pairs_adjacent(k.bias, width), v.bias])
            if biased
            else None,
            qk_norm=qk_norm,
            output=attention.o_proj.weight,
            output_bias=attention.o_proj.bias,
            mlp_norm=layer.post_attention_layernorm.weight,
            gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            down=mlp.down_proj.weight,
        )


def rotate(queries_keys: Tensor, rotary: Tensor) -> Tensor:
    """Apply the rotary embedding, complex [n, 1, w / 2], to every adjacent pair [n, heads, w]."""
    pairs = queries_keys.float().view(*queries_keys.shape[:2], -1, 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotary).flatten(-2).to(queries_keys.dtype)


def pairs_adjacent(weight: Tensor, width: int) -> Tensor:
    """Reorder output rows so that the rotary partners i and i + w/2 of each head become neighbours."""
    return weight.view(-1, 2, width // 2, *weight.shape[1:]).transpose(1, 2).flatten(0, 2)


def obstacle(model: PreTrainedModel) -> str | None:
    """What the fused backend does not support about this model, if anything."""
    config = model.config
    if config.model_type not in FAMILY:
        return f"the architecture {config.model_type!r}"
    if config.rope_parameters["rope_type"] not in STATIC_ROPE:
        return f"rope type {config.rope_parameters['rope_type']!r}"
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "sliding-window attention"
    if config.hidden_act != "silu":
        return f"the activation {config.hidden_act!r}"
    if getattr(config, "mlp_bias", False):
        return "biases in the MLP"
    body = model.base_model
    if any(type(module) is not nn.Linear for module in body.modules() if hasattr(module, "in_features")):
        return "adapters or quantised layers"
    return None
