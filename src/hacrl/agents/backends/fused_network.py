"""The Llama family as a few torch functions over the model's own weight tensors.

Every layer runs on tokens laid end to end, [n, d]; only the `Attend` function knows which belong
together. Queries and keys keep the two halves of a rotary pair side by side, so that rotating them is one
complex product; both are permuted alike, so their dot products stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from hacrl.agents.backends.fused_family import (
    ACTIVATIONS,
    FAMILY,
    NO_ROPE,
    activation_name,
    layer_ropes,
    layer_windows,
    obstacle,
)
from hacrl.agents.backends.head import OutputHead
from hacrl.agents.backends.interfaces import UnsupportedModel
from hacrl.agents.backends.projection import Order, Projection, as_they_are, fuse
from hacrl.agents.backends.rms_norm import rms_norm
from hacrl.agents.ranks import as_forward

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer number, queries [n, heads, w], keys and values [n, kv heads, w] -> output [n, heads * w]."""

METHOD = "fused_layer"
"""Name of the method that a layer of a sharded model runs in."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights; None: the architecture has none there.

    Those that share an input are one fused copy or, without copies, the model's own ones.
    """

    before_attention: Tensor | None
    qkv: tuple[Projection, ...]
    qk_norm: Tensor | None
    """[query and key heads, w]"""
    output: Projection
    after_attention: Tensor | None
    before_mlp: Tensor | None
    gate_up: tuple[Projection, ...]
    down: Projection
    after_mlp: Tensor | None

    def packed(self) -> LayerWeights:
        """For decoding few responses (see `packed_weights`)."""
        return replace(
            self,
            qkv=tuple(part.packed() for part in self.qkv),
            output=self.output.packed(),
            gate_up=tuple(part.packed() for part in self.gate_up),
            down=self.down.packed(),
        )


class FusedNetwork:
    """Runs one model of the family, always with the current values of the model's own parameters."""

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False, *, copies: bool = True) -> None:
        """Without `copies` of its weights it takes a little longer."""
        reason = obstacle(model)
        if reason:
            raise UnsupportedModel(f"the fused backend does not support {reason}")
        config = model.config.get_text_config()
        self._body = model.get_decoder()  # without the vision tower that some models have beside it
        self._architecture = FAMILY[config.model_type]
        self._activation = ACTIVATIONS[activation_name(config)]
        self._embedding: nn.Embedding = model.get_input_embeddings()
        self.head = OutputHead(model)
        self._adds_to_head = copies and self.head.is_plain_large(self._embedding.weight)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_width: int = self._body.layers[0].self_attn.head_dim
        self.scale: float = self._body.layers[0].self_attn.scaling
        self.windows = layer_windows(config)
        self._ropes = layer_ropes(config)
        self._eps: float = config.rms_norm_eps
        self._checkpointing = checkpointing
        self._copies = copies
        self._rotary: dict[str, Tensor] = {}

    def weights(self) -> list[LayerWeights]:
        """All layers' weights; gradients flow back to the model's parameters."""
        return [self._layer_weights(layer) for layer in self._body.layers]

    def run(
        self,
        ids: Tensor,
        positions: Tensor,
        longest: int,
        weights: Sequence[LayerWeights] | None,
        attend: Attend,
        live: Tensor | None = None,
    ) -> Tensor:
        """Token ids and positions [n] -> states [n, d] before the last norm, or those of `live` tokens.

        All positions are below `longest`, which is given so that nothing has to be read from the device.
        Without `weights`, each layer's are read in its turn, which is when FSDP has gathered them.
        """
        hidden = self._embed(ids)
        rotary = {rope: self._rotations(rope, positions, longest) for rope in set(self._ropes) - {NO_ROPE}}
        modules = self._body.layers
        for number, module in enumerate(modules):
            arguments = (attend, number, live if number == len(modules) - 1 else None)
            rotation = rotary.get(self._ropes[number])
            if weights is None:
                run = as_forward(module, METHOD, partial(self._turn, module))
                hidden = run(hidden, rotation, *arguments)
            else:
                hidden = self._recomputed(hidden, rotation, weights[number], *arguments)
        return hidden

    def _embed(self, ids: Tensor) -> Tensor:
        """Of embeddings that are also the head's weights, only the rows of these tokens get a gradient here.

        The head's gradient is there first and holds all rows; autograd adds these to it in place. A second
        dense one would take as much memory again, and most of it is zeros.
        """
        if not self._adds_to_head:
            plain: Tensor = self._embedding(ids)
            return plain
        earlier = self._embedding.sparse
        try:
            self._embedding.sparse = True
            states: Tensor = self._embedding(ids)
            return states
        finally:
            self._embedding.sparse = earlier

    def last_norm(self, hidden: Tensor) -> Tensor:
        """States after the last norm, which the head takes."""
        return self._norm(hidden, self._norm_weight(self._body.norm))

    def _rotations(self, rope: str, positions: Tensor, longest: int) -> Tensor:
        """Rotation of every query and key at these positions [n] -> complex [n, 1, w / 2]."""
        if longest > len(self._rotary.get(rope, ())):
            embedding = self._body.rotary_emb
            steps = torch.arange(2 * longest, device=self.device, dtype=torch.float32)
            frequencies = getattr(embedding, f"{rope}inv_freq").to(self.device, torch.float32)
            angles = steps[:, None] * frequencies
            length = getattr(embedding, f"{rope}attention_scaling")
            self._rotary[rope] = torch.polar(torch.full_like(angles, length), angles)
        return self._rotary[rope][positions][:, None]

    def _turn(self, module: Any, hidden: Tensor, rotation: Tensor | None, *others: Any) -> Tensor:
        return self._recomputed(hidden, rotation, self._layer_weights(module), *others)

    def _recomputed(self, *arguments: Any) -> Tensor:
        """One layer; with checkpointing, the backward pass computes it again."""
        if not (self._checkpointing and torch.is_grad_enabled()):
            return self._layer(*arguments)
        hidden: Tensor = checkpoint(self._layer, *arguments, use_reentrant=False)
        return hidden

    def _layer(
        self,
        hidden: Tensor,
        rotation: Tensor | None,
        layer: LayerWeights,
        attend: Attend,
        number: int,
        live: Tensor | None,
    ) -> Tensor:
        rows, rotated = len(hidden), self.heads + self.kv_heads
        normed = self._norm(hidden, layer.before_attention)
        mixed = _joined([part(normed) for part in layer.qkv]).view(rows, -1, self.head_width)
        queries_keys = mixed[:, :rotated]
        if not self._copies:  # copies have their rows in this order
            queries_keys = pairs_adjacent(queries_keys.flatten(), self.head_width).view(queries_keys.shape)
        if layer.qk_norm is not None:
            queries_keys = self._normed_heads(queries_keys, layer.qk_norm)
        if rotation is not None:
            queries_keys = rotate(queries_keys, rotation)
        attended = attend(
            number, queries_keys[:, : self.heads], queries_keys[:, self.heads :], mixed[:, rotated:]
        )
        if live is not None:
            hidden, attended = hidden.index_select(0, live), attended.index_select(0, live)
        hidden = hidden + self._norm(layer.output(attended), layer.after_attention)
        normed = self._norm(hidden, layer.before_mlp)
        gate_up = [part(normed) for part in layer.gate_up]
        gate, up = gate_up if len(gate_up) > 1 else gate_up[0].chunk(2, -1)
        mlp = layer.down(self._activation(gate) * up)
        return hidden + self._norm(mlp, layer.after_mlp)

    def _norm(self, hidden: Tensor, weight: Tensor | None) -> Tensor:
        return hidden if weight is None else rms_norm(hidden, weight, self._eps)

    def _normed_heads(self, queries_keys: Tensor, weight: Tensor) -> Tensor:
        """Each head on its own or, in OLMo 2, all heads of the queries and of the keys together."""
        if self._norms_heads_apart:
            normed = F.rms_norm(queries_keys, (self.head_width,), eps=self._eps)
        else:
            parts = queries_keys[:, : self.heads], queries_keys[:, self.heads :]
            normed = torch.cat([F.rms_norm(part, part.shape[1:], eps=self._eps) for part in parts], 1)
        return (normed * weight).to(queries_keys.dtype)

    @property
    def _norms_heads_apart(self) -> bool:
        return bool(self._body.layers[0].self_attn.q_norm.weight.numel() == self.head_width)

    def _norm_weight(self, norm: Any) -> Tensor:
        """What the norm multiplies with; a sum with an offset has more digits than half precision."""
        offset = self._architecture.norm_offset
        weight: Tensor = norm.weight
        return weight if offset == 0.0 else offset + weight.float()

    def _layer_weights(self, layer: Any) -> LayerWeights:
        attention, mlp, architecture = layer.self_attn, layer.mlp, self._architecture
        qkv = attention.q_proj, attention.k_proj, attention.v_proj
        gate_up = mlp.gate_proj, mlp.up_proj

        def norm(name: str | None) -> Tensor | None:
            return None if name is None else self._norm_weight(getattr(layer, name))

        return LayerWeights(
            before_attention=norm(architecture.before_attention),
            qkv=self._projections(qkv, self._in_pairs),
            qk_norm=self._qk_norm(attention) if hasattr(attention, "q_norm") else None,
            output=fuse([attention.o_proj]),
            after_attention=norm(architecture.after_attention),
            before_mlp=norm(architecture.before_mlp),
            gate_up=self._projections(gate_up),
            down=fuse([mlp.down_proj]),
            after_mlp=norm(architecture.after_mlp),
        )

    def _projections(self, layers: Sequence[Any], order: Order = as_they_are) -> tuple[Projection, ...]:
        return (fuse(layers, order),) if self._copies else tuple(fuse([layer]) for layer in layers)

    def _in_pairs(self, qkv: Sequence[Tensor]) -> list[Tensor]:
        """Weights or biases of queries, keys and values; rotary partners become neighbours."""
        q, k, v = qkv
        return [pairs_adjacent(q, self.head_width), pairs_adjacent(k, self.head_width), v]

    def _qk_norm(self, attention: Any) -> Tensor:
        width = self.head_width
        norms = ((attention.q_norm, self.heads), (attention.k_norm, self.kv_heads))
        weights = [
            pairs_adjacent(self._norm_weight(norm), width).view(-1, width).expand(heads, -1)
            for norm, heads in norms
        ]
        return torch.cat(weights)


def _joined(products: Sequence[Tensor]) -> Tensor:
    return products[0] if len(products) == 1 else torch.cat(list(products), -1)


def rotate(queries_keys: Tensor, rotary: Tensor) -> Tensor:
    """Apply the rotary embedding, complex [n, 1, w / 2], to every adjacent pair [n, heads, w]."""
    pairs = queries_keys.float().view(*queries_keys.shape[:2], -1, 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotary).flatten(-2).to(queries_keys.dtype)


def pairs_adjacent(weight: Tensor, width: int) -> Tensor:
    """Reorder output rows so that the rotary partners i and i + w/2 of each head become neighbours."""
    heads = len(weight) // width
    return weight.view(heads, 2, width // 2, *weight.shape[1:]).transpose(1, 2).flatten(0, 2)
