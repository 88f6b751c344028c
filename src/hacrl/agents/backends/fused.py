"""The fused backend: scoring and decoding with `FusedNetwork`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from hacrl.agents.backends import packed_weights
from hacrl.agents.backends.fused_network import FusedNetwork, LayerWeights
from hacrl.agents.backends.fused_packing import MASKED, Packing, pack
from hacrl.agents.backends.interfaces import Row, Tokens
from hacrl.agents.backends.padded import METHOD
from hacrl.agents.ranks import as_forward


class FusedScorer:
    """All tokens of a batch, prompts and responses, go through each layer together."""

    shares_prompts = True

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False) -> None:
        self._network = FusedNetwork(model, checkpointing)

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens; 0 where padded."""
        packing = self._pack(rows)
        return packing.spread(self._logps(packing, self._network.weights()))

    def states(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """The last layer's states [b, t, d] of all tokens of each prompt, and where there is one."""
        network = self._network
        packing = self._pack([(prompt, (0,)) for prompt in prompts])
        distinct = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        slots = packing.prompts[[distinct[prompt] for prompt in prompts]]
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=network.device)
        mask = torch.arange(slots.shape[1], 0, -1, device=network.device) <= lengths[:, None]
        return network.last_norm(self._run(packing, network.weights()))[slots], mask

    def _pack(self, rows: Sequence[Row]) -> Packing:
        return pack(rows, self._network.device, self._network.dtype, self._network.windows)

    def _logps(self, packing: Packing, weights: Sequence[LayerWeights] | None) -> Tensor:
        """Log-probs [m] of all response tokens."""
        hidden = self._run(packing, weights, packing.live)
        needed = self._network.last_norm(hidden.index_select(0, packing.states))
        return self._network.head.logps(needed, packing.targets)

    def _run(
        self, packing: Packing, weights: Sequence[LayerWeights] | None, live: Tensor | None = None
    ) -> Tensor:
        network = self._network

        def attend(number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return packing.attend(queries, keys, values, network.scale, network.windows[number])

        return network.run(packing.ids, packing.positions, packing.longest, weights, attend, live)


class ShardedScorer(FusedScorer):
    """The same for a model that several ranks hold: FSDP gathers the weights of one layer after the other.

    Every layer runs once per batch, so that all ranks gather equally often, whatever their rows.
    """

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False) -> None:
        self._model = model
        # Copies of the weights would be kept for the backward pass, which sharding is to avoid.
        self._network = FusedNetwork(model, checkpointing, copies=False)

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens; 0 where padded."""
        packing = self._pack(rows)
        return packing.spread(as_forward(self._model, METHOD, self._logps)(packing, None))


class FusedDecoder:
    """Decode with fused weights, or without copies of them, and a cache written in place."""

    def __init__(self, model: PreTrainedModel, *, copies: bool = True) -> None:
        self._network = FusedNetwork(model, copies=copies)

    def start(self, prompts: Sequence[Tokens], prompt_of_row: Tensor) -> tuple[Tensor, _FusedSession]:
        """Prefill each prompt once; every row starts from its prompt's keys and values."""
        network = self._network
        rows = [(prompt, (0,)) for prompt in prompts]
        packing = pack(rows, network.device, network.dtype, network.windows)
        keys_values: list[tuple[Tensor, Tensor]] = []

        def attend(number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys_values.append((keys, values))
            return packing.attend(queries, keys, values, network.scale, network.windows[number])

        weights, head = network.weights(), None
        if packed_weights.pays(network.dtype, network.device, len(prompt_of_row)):
            weights, head = [layer.packed() for layer in weights], network.head.packed()
        hidden = network.run(packing.ids, packing.positions, packing.longest, weights, attend, packing.live)
        logits = network.head.logits(network.last_norm(hidden), head)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=network.device)
        session = _FusedSession(network, weights, head, keys_values, packing, lengths, prompt_of_row)
        return logits[prompt_of_row], session


ROOM = 32
"""Tokens that a cache can take up at first, and the least by which it grows."""


class _FusedSession:
    """Caches of all layers as [rows * kv heads, room, w]; the batch of every product is rows * kv heads.

    What all prompts begin with is there once, as [kv heads, shared, w]: with solved examples or long
    instructions in front of every prompt, that is most of what attention reads.
    """

    def __init__(
        self,
        network: FusedNetwork,
        weights: list[LayerWeights],
        head: Tensor | None,
        keys_values: list[tuple[Tensor, Tensor]],
        packing: Packing,
        prompt_lengths: Tensor,
        prompt_of_row: Tensor,
    ) -> None:
        """`keys_values` per layer: those of all prompts' tokens; `packing` says which are whose."""
        self._network, self._weights, self._head = network, weights, head
        self._positions = prompt_lengths[prompt_of_row]
        self._shared = packing.shared
        self._beginnings = [
            (_heads_first(keys[: self._shared]), _heads_first(values[: self._shared]))
            for keys, values in keys_values
        ]
        # Prompts end in the same slot, so that every row writes its next token to the same place.
        rests = packing.prompts[:, packing.shared :]
        self._length = rests.shape[1]
        self._room = self._length + ROOM
        own = prompt_lengths - packing.shared
        real = torch.arange(self._length, 0, -1, device=network.device) <= own[:, None]
        slots = F.pad(rests, (0, ROOM))[prompt_of_row]
        self._keys = [_rows_first(keys, slots) for keys, _ in keys_values]
        self._values = [_rows_first(values, slots) for _, values in keys_values]
        bias = torch.zeros(real.shape, device=real.device).masked_fill(~real, MASKED)[prompt_of_row]
        bias = F.pad(bias, (0, ROOM))
        self._bias = bias.repeat_interleave(network.kv_heads, 0)[:, None].to(network.dtype)
        self._outside: dict[int, Tensor] = {}
        """Of the present step, for each window: [rows * kv heads, 1, shared] what has left it."""

    def advance(self, tokens: Tensor) -> Tensor:
        if self._length == self._room:
            self._make_room()
        self._length += 1
        self._outside.clear()
        network, longest = self._network, self._shared + self._length
        hidden = network.run(tokens, self._positions, longest, self._weights, self._attend)
        self._positions = self._positions + 1
        return network.head.logits(network.last_norm(hidden), self._head)

    def keep(self, rows: Tensor) -> None:
        heads = self._network.kv_heads
        self._positions = self._positions[rows]
        batch = (rows[:, None] * heads + torch.arange(heads, device=rows.device)).flatten()
        # Indexing with brackets would copy several times slower.
        self._keys = [keys.index_select(0, batch) for keys in self._keys]
        self._values = [values.index_select(0, batch) for values in self._values]
        self._bias = self._bias[batch]

    def _attend(self, number: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        length, width = self._length, keys.shape[-1]
        cached_keys, cached_values = self._keys[number], self._values[number]
        cached_keys[:, length - 1] = keys.reshape(-1, width)
        cached_values[:, length - 1] = values.reshape(-1, width)
        grouped = queries.reshape(len(cached_keys), -1, width)
        # Neighbours in the cache are neighbours in the text, so a sliding window is the end of it.
        window = self._network.windows[number]
        seen = slice(0 if window is None else max(0, length - window), length)
        scores = self._scores(grouped, cached_keys[:, seen], self._bias[..., seen])
        if self._shared == 0:
            attended = torch.bmm(scores.softmax(-1), cached_values[:, seen])
        else:
            shared_keys, shared_values = self._beginnings[number]
            to_shared = _by_head(grouped * self._network.scale, shared_keys.mT)
            to_shared = self._inside(to_shared, window)
            both = torch.cat([to_shared, scores], -1).softmax(-1)
            attended = torch.bmm(both[..., self._shared :], cached_values[:, seen])
            attended = attended + _by_head(both[..., : self._shared], shared_values)
        return attended.view(len(queries), -1)

    def _inside(self, scores: Tensor, window: int | None) -> Tensor:
        """Scores [rows * kv heads, g, shared] without those that have left the window."""
        if window is None or self._shared + self._length <= window:
            return scores
        if window not in self._outside:
            distances = self._positions[:, None] - torch.arange(self._shared, device=scores.device)
            outside = (distances >= window).repeat_interleave(self._network.kv_heads, 0)
            self._outside[window] = outside[:, None]
        return scores.masked_fill(self._outside[window], MASKED)

    def _scores(self, queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        network = self._network
        if network.dtype == torch.bfloat16 and network.device.type == "cpu":
            # Several times as fast: the cache has room at its end, which torch's product does not like.
            return torch.bmm(queries * network.scale, keys.contiguous().mT).add_(bias)
        return torch.baddbmm(bias, queries, keys.mT, alpha=network.scale)

    def _make_room(self) -> None:
        """Grow by half, so that copying costs no more than in proportion to the response's length."""
        extra = max(ROOM, self._room // 2)
        self._keys = [F.pad(keys, (0, 0, 0, extra)) for keys in self._keys]
        self._values = [F.pad(values, (0, 0, 0, extra)) for values in self._values]
        self._bias = F.pad(self._bias, (0, extra))
        self._room += extra


def _by_head(rows: Tensor, shared: Tensor) -> Tensor:
    """[rows * kv heads, g, a] times what all rows share, [kv heads, a, b] -> [rows * kv heads, g, b]."""
    heads, groups = len(shared), rows.shape[1]
    apart = rows.view(-1, heads, groups, rows.shape[2]).transpose(0, 1).reshape(heads, -1, rows.shape[2])
    product = torch.bmm(apart, shared).view(heads, -1, groups, shared.shape[2])
    return product.transpose(0, 1).reshape(len(rows), groups, -1)


def _heads_first(tokens: Tensor) -> Tensor:
    """[n, kv heads, w] -> [kv heads, n, w]."""
    return tokens.transpose(0, 1).contiguous()


def _rows_first(tokens: Tensor, slots: Tensor) -> Tensor:
    """[n, kv heads, w] of all tokens -> [rows * kv heads, length, w]."""
    chosen = tokens.index_select(0, slots.flatten()).view(*slots.shape, *tokens.shape[1:])
    return chosen.transpose(1, 2).flatten(0, 1)
