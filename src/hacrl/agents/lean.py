"""The lean path: scoring and decoding with `LeanNetwork`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from hacrl.agents.engine import Row, Tokens, head_logps, left_padded
from hacrl.agents.layout import Layout, lay_out
from hacrl.agents.lean_network import LayerWeights, LeanNetwork

MOST_BUCKETS = 8
"""Buckets cost little here: only attention runs bucket by bucket."""


class LeanScorer:
    """All tokens of a batch, prompts and responses, go through each layer together."""

    shares_prompts = True

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False) -> None:
        self._network = LeanNetwork(model, checkpointing)

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens; 0 where padded."""
        network = self._network
        layout = lay_out(rows, MOST_BUCKETS, network.device)
        lengths = layout.prompt_lengths
        ids, positions = [layout.prompt_ids.flatten()], [_prompt_positions(layout.prompt_mask).flatten()]
        for bucket in layout.buckets:
            steps = torch.arange(bucket.ids.shape[1], device=network.device)
            ids.append(bucket.ids.flatten())
            positions.append((lengths[bucket.prompt_of_row][:, None] + steps).flatten())
        turns = network.turns(torch.cat(positions))
        attend = _GroupAttention(layout, network.scale, next(iter(network.head.parameters())).dtype)
        hidden = network.run(torch.cat(ids), turns, network.weights(), attend)
        needed = network.last_norm(hidden.index_select(0, _needed(layout)))
        return layout.spread(head_logps(network.head, needed, layout.targets, network.vocabulary))


class _GroupAttention:
    """Attention within prompts, and of responses to their prompt and themselves."""

    def __init__(self, layout: Layout, scale: float, dtype: torch.dtype) -> None:
        self._layout = layout
        self._scale = scale
        prompt_mask = layout.prompt_mask
        self._masks = [prompt_mask[:, None, None] & _causal(prompt_mask.shape[1], prompt_mask.device)]
        for bucket in layout.buckets:
            rows, length = bucket.ids.shape
            to_prompt = prompt_mask[bucket.prompt_of_row][:, None, None].expand(-1, -1, length, -1)
            to_itself = _causal(length, prompt_mask.device).expand(rows, 1, -1, -1)
            self._masks.append(torch.cat([to_prompt, to_itself], -1))
        # A padded prompt position may look at nothing: a large negative number instead of minus infinity.
        self._masks = [
            torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -1e9)
            for mask in self._masks
        ]

    def __call__(self, number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        prompts, width = self._layout.prompt_ids.shape
        end = prompts * width
        prompt_keys, prompt_values = (x[:end].view(prompts, width, *x.shape[1:]) for x in (keys, values))
        prompt_queries = queries[:end].view(prompts, width, *queries.shape[1:])
        outputs = [self._attention(prompt_queries, prompt_keys, prompt_values, self._masks[0])]
        for bucket, mask in zip(self._layout.buckets, self._masks[1:], strict=True):
            start, end = end, end + bucket.ids.numel()
            own_queries, own_keys, own_values = (
                x[start:end].view(*bucket.ids.shape, *x.shape[1:]) for x in (queries, keys, values)
            )
            all_keys = torch.cat([prompt_keys.index_select(0, bucket.prompt_of_row), own_keys], 1)
            all_values = torch.cat([prompt_values.index_select(0, bucket.prompt_of_row), own_values], 1)
            outputs.append(self._attention(own_queries, all_keys, all_values, mask))
        return torch.cat(outputs)

    def _attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """[rows, t, heads, w] each -> [rows * t, heads * w]."""
        attended = F.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=mask,
            scale=self._scale,
            enable_gqa=queries.shape[2] != keys.shape[2],
        )
        return attended.transpose(1, 2).flatten(2).flatten(0, 1)


class LeanDecoder:
    """Decode with fused weights and a cache written in place."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._network = LeanNetwork(model)

    def start(self, prompts: Sequence[Tokens], prompt_of_row: Tensor) -> tuple[Tensor, _LeanSession]:
        """Prefill each prompt once; every row starts from its prompt's keys and values."""
        network = self._network
        weights = network.weights()
        ids, mask = left_padded(prompts, network.device)
        prefill = _Prefill(mask, network.scale)
        turns = network.turns(_prompt_positions(mask).flatten())
        hidden = network.run(ids.flatten(), turns, weights, prefill).view(*ids.shape, -1)[:, -1]
        logits: Tensor = network.head(network.last_norm(hidden))
        return logits[prompt_of_row], _LeanSession(network, weights, prefill, mask, prompt_of_row)


class _Prefill:
    """Attention within prompts that keeps keys and values, [prompts, kv heads, length, w] per layer."""

    def __init__(self, mask: Tensor, scale: float) -> None:
        self._mask = mask[:, None, None] & _causal(mask.shape[1], mask.device)
        self._mask |= torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        self._shape = mask.shape
        self._scale = scale
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def __call__(self, number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (x.view(*self._shape, *x.shape[1:]).transpose(1, 2) for x in (queries, keys, values))
        self.keys.append(k)
        self.values.append(v)
        gqa = q.shape[1] != k.shape[1]
        attended = F.scaled_dot_product_attention(
            q, k, v, attn_mask=self._mask, scale=self._scale, enable_gqa=gqa
        )
        return attended.transpose(1, 2).flatten(2).flatten(0, 1)


class _LeanSession:
    """Caches of all layers as [rows * kv heads, room, w]; the batch of every product is rows * kv heads."""

    def __init__(
        self,
        network: LeanNetwork,
        weights: list[LayerWeights],
        prefill: _Prefill,
        mask: Tensor,
        prompt_of_row: Tensor,
    ) -> None:
        self._network, self._weights = network, weights
        self._positions = mask.sum(1)[prompt_of_row]
        self._length = mask.shape[1]
        self._room = self._length
        self._keys = [keys[prompt_of_row].flatten(0, 1) for keys in prefill.keys]
        self._values = [values[prompt_of_row].flatten(0, 1) for values in prefill.values]
        bias = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -1e9)
        self._bias = (
            bias[prompt_of_row].repeat_interleave(network.kv_heads, 0)[:, None].to(self._keys[0].dtype)
        )

    def advance(self, tokens: Tensor) -> Tensor:
        if self._length == self._room:
            self._make_room()
        self._length += 1
        network = self._network
        hidden = network.run(tokens, network.turns(self._positions), self._weights, self._attend)
        self._positions = self._positions + 1
        logits: Tensor = network.head(network.last_norm(hidden))
        return logits

    def keep(self, rows: Tensor) -> None:
        heads = self._network.kv_heads
        self._positions = self._positions[rows]
        batch = (rows[:, None] * heads + torch.arange(heads, device=rows.device)).flatten()
        self._keys = [keys[batch] for keys in self._keys]
        self._values = [values[batch] for values in self._values]
        self._bias = self._bias[batch]

    def _attend(self, number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        length, width = self._length, keys.shape[-1]
        cached_keys, cached_values = self._keys[number], self._values[number]
        cached_keys[:, length - 1] = keys.reshape(-1, width)
        cached_values[:, length - 1] = values.reshape(-1, width)
        grouped = queries.reshape(len(cached_keys), -1, width)
        scores = torch.baddbmm(
            self._bias[..., :length], grouped, cached_keys[:, :length].mT, alpha=self._network.scale
        )
        attended = torch.bmm(scores.softmax(-1), cached_values[:, :length])
        return attended.view(len(queries), -1)

    def _make_room(self) -> None:
        """Half as much again, so that the cost of copying stays in proportion to the response's length."""
        extra = max(32, self._room // 2)
        self._keys = [F.pad(keys, (0, 0, 0, extra)) for keys in self._keys]
        self._values = [F.pad(values, (0, 0, 0, extra)) for values in self._values]
        self._bias = F.pad(self._bias, (0, extra))
        self._room += extra


def _causal(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _prompt_positions(mask: Tensor) -> Tensor:
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def _needed(layout: Layout) -> Tensor:
    """`layout.needed` among all states, where a prompt has one per token instead of its last one only."""
    prompts, width = layout.prompt_ids.shape
    in_prompt = layout.needed * width + width - 1
    in_bucket = layout.needed + prompts * (width - 1)
    return torch.where(layout.needed < prompts, in_prompt, in_bucket)
