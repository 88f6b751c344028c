"""Hugging Face modules, each prompt computed once: its cache is repeated for all its responses.

Layers that attend to a window or a chunk cache all positions, and the model's own masks hide the others.
States of convolutions and linear attention are repeated like keys and values. `choice.py` checks it all.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

from hacrl.agents.backends.body import body_of
from hacrl.agents.backends.gqa import use_gqa_attention
from hacrl.agents.backends.head import OutputHead
from hacrl.agents.backends.interfaces import Row, Tokens, UnsupportedModel, left_padded
from hacrl.agents.backends.layout import lay_out
from hacrl.agents.backends.padded import padded_states

MOST_BUCKETS = 4
"""More buckets save padding but cost one more pass through the Python of every layer."""


REPEATABLE = {"full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv"}
"""Types of layers whose state after the prompt is all that its responses need."""


class Trunk:
    """A causal language model cut in two: hidden states first, the head only where it is needed."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._body: nn.Module = body_of(model)
        self._config = model.config
        self.head = OutputHead(model)
        self.device: torch.device = model.device
        self._takes_positions = "position_ids" in inspect.signature(self._body.forward).parameters

    def empty_cache(self) -> DynamicCache:
        """A cache with the kind of layers this model asks for."""
        cache = DynamicCache(config=self._config)
        cache.layers = [_repeatable(layer) for layer in cache.layers]
        return cache

    def hidden(self, ids: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """States [rows, t, d] of new tokens; `mask` covers cached and new ones. The cache grows."""
        positions = {}
        if self._takes_positions:
            seen = mask.long().cumsum(1) - 1
            positions = {"position_ids": seen.clamp(min=0)[:, -ids.shape[1] :]}
        padded = None if bool(mask.all()) else mask.long()
        output = self._body(
            input_ids=ids, attention_mask=padded, past_key_values=cache, use_cache=True, **positions
        )
        hidden: Tensor = output.last_hidden_state
        return hidden


class SharedPrefixScorer:
    """Prefill each prompt with gradients, then run its responses in buckets of similar length."""

    shares_prompts = True

    def __init__(self, model: PreTrainedModel) -> None:
        kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
        if kinds - REPEATABLE:
            names = ", ".join(sorted(kinds - REPEATABLE))
            raise UnsupportedModel(f"a prompt's state in layers of type {names} cannot be repeated")
        self._model, self._trunk = model, Trunk(model)

    def states(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """The last layer's states [b, t, d] of all tokens of each prompt, and where there is one."""
        return padded_states(self._model, prompts)

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens; 0 where padded."""
        trunk = self._trunk
        layout = lay_out(rows, MOST_BUCKETS, trunk.device)
        cache = trunk.empty_cache()
        states = [trunk.hidden(layout.prompt_ids, layout.prompt_mask, cache)[:, -1]]
        for bucket in layout.buckets:
            real = torch.ones_like(bucket.ids, dtype=torch.bool)
            mask = torch.cat([layout.prompt_mask[bucket.prompt_of_row], real], 1)
            hidden = trunk.hidden(bucket.ids, mask, _repeated(cache, bucket.prompt_of_row))
            states.append(hidden.flatten(0, 1))
        hidden = torch.cat(states).index_select(0, layout.needed)
        return layout.spread(trunk.head.logps(hidden, layout.targets))


class CachedDecoder:
    """Decode with the model's own cache, grown in place."""

    def __init__(self, model: PreTrainedModel) -> None:
        use_gqa_attention(model)
        self._trunk = Trunk(model)

    def start(self, prompts: Sequence[Tokens], prompt_of_row: Tensor) -> tuple[Tensor, _CachedSession]:
        """Prefill each prompt once; every row starts from its prompt's cache."""
        ids, mask = left_padded(prompts, self._trunk.device)
        cache = self._trunk.empty_cache()
        last = self._trunk.hidden(ids, mask, cache)[:, -1]
        logits = self._trunk.head.logits(last)
        session = _CachedSession(self._trunk, _repeated(cache, prompt_of_row), mask[prompt_of_row])
        return logits[prompt_of_row], session


class _CachedSession:
    def __init__(self, trunk: Trunk, cache: DynamicCache, mask: Tensor) -> None:
        self._trunk, self._cache, self._mask = trunk, cache, mask
        cache.layers = [
            _GrowingLayer.of(layer) if type(layer) is DynamicLayer else layer for layer in cache.layers
        ]

    def advance(self, tokens: Tensor) -> Tensor:
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=True)
        hidden = self._trunk.hidden(tokens[:, None], self._mask, self._cache)
        return self._trunk.head.logits(hidden[:, -1])

    def keep(self, rows: Tensor) -> None:
        self._mask = self._mask[rows]
        self._cache.reorder_cache(rows)


class _GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with room to spare: a new token is written in place instead of copying all old ones."""

    keys: Tensor
    values: Tensor
    _room_keys: Tensor
    _room_values: Tensor

    @classmethod
    def of(cls, layer: DynamicLayer) -> _GrowingLayer:
        growing = cls()
        growing.lazy_initialization(layer.keys, layer.values)
        growing.keys, growing.values = layer.keys, layer.values
        growing._room_keys, growing._room_values = layer.keys, layer.values
        return growing

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        start, end = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2]
        if end > self._room_keys.shape[-2]:
            self._room_keys = _with_room(self.keys, end)
            self._room_values = _with_room(self.values, end)
        self._room_keys[:, :, start:end] = key_states
        self._room_values[:, :, start:end] = value_states
        self.keys, self.values = self._room_keys[:, :, :end], self._room_values[:, :, :end]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.keys = self._room_keys = self.keys.index_select(0, beam_idx)
        self.values = self._room_values = self.values.index_select(0, beam_idx)


def _with_room(cached: Tensor, needed: int) -> Tensor:
    rows, heads, length, width = cached.shape
    room = cached.new_empty(rows, heads, needed + max(32, length // 2), width)
    room[:, :, :length] = cached
    return room


class _StateLayer(LinearAttentionLayer):  # type: ignore[misc]
    """States that are replaced where transformers overwrites them, so that gradients flow through them."""

    def __init__(self) -> None:
        super().__init__()
        if torch.is_grad_enabled():
            self.activate_past_recording()  # of convolutions: new inputs are appended, not copied

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **others: object
    ) -> Tensor:
        self.recurrent_states[state_idx] = recurrent_states
        self.is_recurrent_states_initialized[state_idx] = True
        return recurrent_states


def _repeatable(layer: object) -> object:
    """The layer itself, or one that does the same and can be repeated."""
    if type(layer) is DynamicSlidingWindowLayer:
        return DynamicLayer()
    return _StateLayer() if type(layer) is LinearAttentionLayer else layer


def _repeated(cache: DynamicCache, prompt_of_row: Tensor) -> DynamicCache:
    """A cache with one entry per row; the original stays as it is. Differentiable."""
    repeated = copy.copy(cache)
    repeated.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in repeated.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):  # its states are in dictionaries
            vars(layer).update({name: dict(v) for name, v in vars(layer).items() if isinstance(v, dict)})
    repeated.reorder_cache(prompt_of_row)
    return repeated
