"""Tokens laid end to end without any padding: all prompts once, then all responses.

Only attention needs rectangles: a `Block` says which tokens go into one. Responses, without their last token
(nothing follows it), go into a few blocks of similar length, each row behind its prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from hacrl.agents.backends.interfaces import Row, Tokens
from hacrl.agents.backends.layout import length_buckets

MOST_BLOCKS = 4
SCORES_AT_ONCE = 1 << 22
"""Most attention scores (8 MB in bf16) of a block that are written out."""
MASKED = -1e9
"""Added to forbidden scores; finite, so that a slot that may attend to nothing does not become NaN."""

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Block:
    """One rectangle of attention; slots without a token point at an arbitrary one, which the mask hides."""

    queries: Tensor
    """[rows, t] indices of tokens."""
    keys: Tensor
    """[rows, l]"""
    masks: Mapping[int | None, Tensor | None]
    """For each sliding window: [rows, 1, t, l] added to the scores; None: plainly causal."""

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Queries [n, heads, w], keys and values [n, kv heads, w] of all tokens -> [rows * t, heads * w]."""
        mask = self.masks[window]
        gqa = queries.shape[1] != keys.shape[1]
        queries = _rectangle(queries, self.queries)
        keys, values = _rectangle(keys, self.keys), _rectangle(values, self.keys)
        if _gains_by_products(queries, keys):
            attended = attention_by_products(queries, keys, values, mask, scale)
        else:
            attended = F.scaled_dot_product_attention(
                queries, keys, values, mask, is_causal=mask is None, scale=scale, enable_gqa=gqa
            )
        return attended.transpose(1, 2).flatten(2).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class Packing:
    """One batch: its tokens end to end, where their attention happens, and the log-probs asked for."""

    ids: Tensor
    positions: Tensor
    longest: int
    """Above every position."""
    blocks: list[Block]
    restore: Tensor
    """[n] where each token's output is among those of the blocks, laid end to end."""
    live: Tensor
    """Tokens needed after the last attention: the prompts' last ones, then all response tokens."""
    states: Tensor
    """[m] for each response token: the state that predicts it, among `live`."""
    targets: Tensor
    """[m] the response tokens themselves."""
    places: Tensor
    """[m] where their log-probs go in the flattened [s, t] result."""
    shape: tuple[int, int]

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None = None
    ) -> Tensor:
        """Attention output [n, heads * w] of all tokens; with a window, to so many of the last ones only."""
        outputs = [block.attend(queries, keys, values, scale, window) for block in self.blocks]
        return torch.cat(outputs).index_select(0, self.restore)

    def spread(self, logps: Tensor) -> Tensor:
        """Log-probs [m] of the response tokens -> [s, t], 0 where padded."""
        flat = logps.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_copy(0, self.places, logps).view(self.shape)


def pack(
    rows: Sequence[Row], device: torch.device, dtype: torch.dtype, windows: Iterable[int | None] = ()
) -> Packing:
    """Lay out these rows, all rows with the same prompt behind one copy of it.

    `dtype` is the model's, `windows` are those of its layers.
    """
    numbers: dict[Tokens, int] = {}
    prompt_of_row = np.array([numbers.setdefault(prompt, len(numbers)) for prompt, _ in rows])
    prompts, responses = list(numbers), [response for _, response in rows]
    prompt_lengths, fed = _lengths(prompts), _lengths(responses) - 1
    prompt_starts = _starts(prompt_lengths)
    starts = prompt_lengths.sum() + _starts(fed)

    make_masks = partial(_masks, windows=frozenset({None, *windows}), device=device, dtype=dtype)
    slots, real = rectangle(prompt_starts, prompt_lengths)
    places = np.broadcast_to(np.arange(slots.shape[1]), slots.shape)
    blocks = [Block(_tensor(slots, device), _tensor(slots, device), make_masks(None, places, places))]
    order, offset = [slots[real]], real.size
    restore, positions = [np.flatnonzero(real)], [np.nonzero(real)[1]]
    for members in length_buckets(fed.tolist(), MOST_BLOCKS):
        mine = prompt_of_row[members]
        context, known = rectangle(prompt_starts[mine], prompt_lengths[mine])
        slots, real = rectangle(starts[members], fed[members])
        keys = np.concatenate([context, slots], 1)
        places = prompt_lengths[mine][:, None] + np.arange(slots.shape[1])
        before = np.broadcast_to(np.arange(context.shape[1]), context.shape)
        masks = make_masks(_allowed(known, slots), places, np.concatenate([before, places], 1))
        blocks.append(Block(_tensor(slots, device), _tensor(keys, device), masks))
        row, column = np.nonzero(real)
        order.append(slots[real])
        restore.append(offset + np.flatnonzero(real))
        positions.append(prompt_lengths[mine][row] + column)
        offset += real.size
    states = (starts - prompt_lengths.sum() + len(prompts) - 1)[:, None] + np.arange(fed.max() + 1)
    states[:, 0] = prompt_of_row
    asked = rectangle(starts, fed + 1)[1]
    in_order = np.argsort(np.concatenate(order))
    at = np.concatenate(positions)[in_order]
    return Packing(
        ids=_tensor(_end_to_end([*prompts, *(response[:-1] for response in responses)]), device),
        positions=_tensor(at, device),
        longest=int(at.max()) + 1,
        blocks=blocks,
        restore=_tensor(np.concatenate(restore)[in_order], device),
        live=_tensor(np.append(prompt_starts + prompt_lengths - 1, _end(prompt_lengths, fed)), device),
        states=_tensor(states[asked], device),
        targets=_tensor(_end_to_end(responses), device),
        places=_tensor(np.flatnonzero(asked), device),
        shape=(asked.shape[0], asked.shape[1]),
    )


def attention_by_products(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """What `F.scaled_dot_product_attention` computes; query heads that share a key are one product's rows."""
    rows, heads, length, width = queries.shape
    kv_heads, seen = keys.shape[1:3]
    if mask is None:
        mask = queries.new_full((length, seen), MASKED).triu(1)
    grouped = (queries * scale).reshape(rows * kv_heads, -1, width)
    scores = torch.bmm(grouped, keys.reshape(-1, seen, width).mT).view(rows, heads, length, seen)
    weights = (scores + mask).softmax(-1).view(rows * kv_heads, -1, seen)
    return torch.bmm(weights, values.reshape(-1, seen, width)).view(queries.shape)


def _gains_by_products(queries: Tensor, keys: Tensor) -> bool:
    """On a CPU, torch's attention to short texts is several times slower in bf16, backward most of all."""
    rows, heads, length, _ = queries.shape
    in_bf16 = queries.device.type == "cpu" and queries.dtype == torch.bfloat16
    return in_bf16 and rows * heads * length * keys.shape[2] <= SCORES_AT_ONCE


def rectangle(starts: Index, lengths: Index) -> tuple[Index, Mask]:
    """Runs of consecutive tokens as indices [rows, longest], 0 after a row's end, and where they are real."""
    columns = np.arange(lengths.max())
    real = columns < lengths[:, None]
    return np.where(real, starts[:, None] + columns, 0), real


def _allowed(known: Mask, slots: Index) -> Mask:
    """[rows, t, l] what a response's tokens attend to: its whole prompt, and itself up to here."""
    rows, length = slots.shape
    to_prompt = np.broadcast_to(known[:, None], (rows, length, known.shape[1]))
    to_itself = np.broadcast_to(np.tri(length, dtype=bool), (rows, length, length))
    return np.concatenate([to_prompt, to_itself], 2)


def _masks(
    allowed: Mask | None,
    queries: Index,
    keys: Index,
    *,
    windows: frozenset[int | None],
    device: torch.device,
    dtype: torch.dtype,
) -> dict[int | None, Tensor | None]:
    """For each window, what is added to the scores of queries and keys at positions [rows, t] and [rows, l].

    `allowed` [rows, t, l] is without a window; None: plainly causal.
    """

    def added(mask: Mask) -> Tensor:
        forbidden = torch.from_numpy(~mask[:, None]).to(device)
        return torch.zeros(forbidden.shape, dtype=dtype, device=device).masked_fill(forbidden, MASKED)

    whole = None if allowed is None else added(allowed)
    masks: dict[int | None, Tensor | None] = dict.fromkeys(windows, whole)
    for window in windows:
        if window is not None and window <= queries.max():  # a shorter text is inside it as a whole
            distance = queries[:, :, None] - keys[:, None, :]
            seen = distance >= 0 if allowed is None else allowed
            masks[window] = added(seen & (distance < window))
    return masks


def _rectangle(tokens: Tensor, slots: Tensor) -> Tensor:
    """[n, heads, w] of all tokens -> [rows, heads, t, w] of a rectangle of them."""
    return tokens.index_select(0, slots.flatten()).view(*slots.shape, *tokens.shape[1:]).transpose(1, 2)


def _lengths(sequences: Sequence[Tokens]) -> Index:
    return np.array([len(tokens) for tokens in sequences])


def _starts(lengths: Index) -> Index:
    starts: Index = np.cumsum(lengths) - lengths
    return starts


def _end(prompt_lengths: Index, fed: Index) -> Index:
    """Indices of all response tokens, which come after the prompts."""
    return np.arange(prompt_lengths.sum(), prompt_lengths.sum() + fed.sum())


def _end_to_end(sequences: Sequence[Tokens]) -> Index:
    return np.fromiter((token for tokens in sequences for token in tokens), np.int64)


def _tensor(index: Index, device: torch.device) -> Tensor:
    return torch.from_numpy(index).to(device)
