"""Tokens laid end to end without any padding: what all prompts begin with, the prompts, the responses.

Only attention needs rectangles: a `Block` says which tokens go into one. Responses, without their last token
(nothing follows it), go into a few blocks of similar length, each row behind its prompt. A long beginning
that all prompts have in common (instructions, solved examples) is computed once for all of them. Where the
masks of a block would be large, whole rows take its place (`fused_long.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from hacrl.agents.backends.fused_long import LongBlock, as_rectangle
from hacrl.agents.backends.interfaces import Row, Tokens
from hacrl.agents.backends.layout import length_buckets

MOST_BLOCKS = 4
SCORES_AT_ONCE = 1 << 22
"""Most attention scores (8 MB in bf16) of a block that are written out."""
MASKED_AT_ONCE = 1 << 22
"""Most entries (16 MB in fp32) of a mask, unless prompts are much longer than responses."""
LONGER_PROMPTS = 4
"""Where prompts are so many times as long as responses, attention of whole rows would cost too much."""
SHORTEST_PREFIX = 16
"""Tokens that all prompts have in common; fewer are not worth a block of their own."""
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
        queries = as_rectangle(queries, self.queries)
        keys, values = as_rectangle(keys, self.keys), as_rectangle(values, self.keys)
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
    blocks: list[Block | LongBlock]
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
    prompts: Tensor
    """[prompts, longest] the tokens of each prompt, which ends in the last column; 0 before it begins."""
    shared: int
    """How many tokens all prompts begin with: the first ones of the batch, computed once."""

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
    prefix = common_prefix(prompts)
    rests = [prompt[len(prefix) :] for prompt in prompts]
    lengths, fed = _lengths(rests), _lengths(responses) - 1
    beginnings = len(prefix) + _starts(lengths)
    first_response = len(prefix) + lengths.sum()
    starts = first_response + _starts(fed)

    layout = _Layout(partial(_masks, windows=frozenset({None, *windows}), device=device, dtype=dtype), device)
    if prefix:
        layout.add(_Context.none(1), np.array([0]), np.array([len(prefix)]))
    layout.add(_Context.prefix(len(prompts), len(prefix)), beginnings, lengths)
    for members in length_buckets(fed.tolist(), MOST_BLOCKS):
        mine = prompt_of_row[members]
        context = _Context.prefix(len(mine), len(prefix)).then(beginnings[mine], lengths[mine])
        layout.add(context, starts[members], fed[members])
    states = (starts - first_response + len(prompts) - 1)[:, None] + np.arange(fed.max() + 1)
    states[:, 0] = prompt_of_row
    asked = rectangle(starts, fed + 1)[1]
    restore, positions = layout.in_order()
    return Packing(
        ids=_tensor(_end_to_end([prefix, *rests, *(response[:-1] for response in responses)]), device),
        positions=_tensor(positions, device),
        longest=int(positions.max()) + 1,
        blocks=layout.blocks,
        restore=_tensor(restore, device),
        live=_tensor(
            np.append(beginnings + lengths - 1, np.arange(first_response, first_response + fed.sum())), device
        ),
        states=_tensor(states[asked], device),
        targets=_tensor(_end_to_end(responses), device),
        places=_tensor(np.flatnonzero(asked), device),
        shape=(asked.shape[0], asked.shape[1]),
        prompts=_tensor(
            _at_the_end(_Context.prefix(len(prompts), len(prefix)).then(beginnings, lengths)), device
        ),
        shared=len(prefix),
    )


def common_prefix(prompts: Sequence[Tokens]) -> Tokens:
    """What all prompts begin with, if it is long enough; at least one token of each prompt is left."""
    if len(prompts) < 2:
        return ()
    low, high = min(prompts), max(prompts)  # what these two have in common, all in between have too
    most = min(map(len, prompts)) - 1
    length = next((i for i in range(most) if low[i] != high[i]), most)
    return low[:length] if length >= SHORTEST_PREFIX else ()


@dataclass(frozen=True, slots=True)
class _Context:
    """What comes before the tokens of each row, from position 0 on."""

    slots: Index
    """[rows, c] indices of tokens."""
    known: Mask
    """Where there is one; a row's real ones come first."""

    @classmethod
    def none(cls, rows: int) -> _Context:
        return cls.prefix(rows, 0)

    @classmethod
    def prefix(cls, rows: int, length: int) -> _Context:
        """The first tokens of all."""
        slots = np.broadcast_to(np.arange(length), (rows, length))
        return cls(slots, np.ones(slots.shape, bool))

    def then(self, starts: Index, lengths: Index) -> _Context:
        """And these, row by row; only the last part of a context may have rows of different length."""
        slots, known = rectangle(starts, lengths)
        return _Context(np.concatenate([self.slots, slots], 1), np.concatenate([self.known, known], 1))

    @property
    def lengths(self) -> Index:
        lengths: Index = self.known.sum(1)
        return lengths


class _Layout:
    """Collects blocks of attention, and where the tokens' outputs are among theirs."""

    def __init__(
        self, make_masks: Callable[..., dict[int | None, Tensor | None]], device: torch.device
    ) -> None:
        self.blocks: list[Block | LongBlock] = []
        self._make_masks = make_masks
        self._device = device
        self._order: list[Index] = []
        self._restore: list[Index] = []
        self._positions: list[Index] = []
        self._size = 0

    def add(self, context: _Context, starts: Index, lengths: Index) -> None:
        """A block of rows of consecutive tokens, each behind its context."""
        slots, real = rectangle(starts, lengths)
        before, width = context.slots.shape[1], slots.shape[1]
        if slots.size * (before + width) > MASKED_AT_ONCE and before < LONGER_PROMPTS * width:
            slots, real, places = _whole_rows(context, starts, lengths)
            self._keep(LongBlock(_tensor(slots, self._device)), slots, real, places)
        else:
            places = context.lengths[:, None] + np.arange(width)
            self._keep(self._masked(context, slots, places), slots, real, places)

    def _masked(self, context: _Context, slots: Index, places: Index) -> Block:
        keys, allowed, seen = slots, None, places
        if context.slots.size:
            keys = np.concatenate([context.slots, slots], 1)
            allowed = _allowed(context.known, slots)
            before = np.broadcast_to(np.arange(context.slots.shape[1]), context.slots.shape)
            seen = np.concatenate([before, places], 1)
        masks = self._make_masks(allowed, places, seen)
        return Block(_tensor(slots, self._device), _tensor(keys, self._device), masks)

    def _keep(self, block: Block | LongBlock, slots: Index, real: Mask, places: Index) -> None:
        """A block whose outputs, where they are `real`, are those of tokens in `slots`, at these `places`."""
        self.blocks.append(block)
        self._order.append(slots[real])
        self._restore.append(self._size + np.flatnonzero(real))
        self._positions.append(places[real])
        self._size += real.size

    def in_order(self) -> tuple[Index, Index]:
        """For every token, its output among those of the blocks, laid end to end, and its position."""
        order = np.argsort(np.concatenate(self._order))
        return np.concatenate(self._restore)[order], np.concatenate(self._positions)[order]


def _whole_rows(context: _Context, starts: Index, lengths: Index) -> tuple[Index, Mask, Index]:
    """Rows and what comes before them as sequences [rows, t]: tokens, which are the row's own, positions."""
    before = context.lengths[:, None]
    width = int((before[:, 0] + lengths).max())
    places = np.broadcast_to(np.arange(width), (len(starts), width))
    real = (places >= before) & (places < before + lengths[:, None])
    slots = np.where(real, starts[:, None] - before + places, 0)
    earlier = np.pad(context.slots, ((0, 0), (0, max(0, width - context.slots.shape[1]))))[:, :width]
    return np.where(places < before, earlier, slots), real, places


def _at_the_end(context: _Context) -> Index:
    """The slots of each row moved to the right, so that it ends in the last column."""
    width = context.slots.shape[1]
    columns = np.arange(width) - (width - context.lengths)[:, None]
    moved: Index = np.where(columns >= 0, np.take_along_axis(context.slots, columns.clip(min=0), 1), 0)
    return moved


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


def _lengths(sequences: Sequence[Tokens]) -> Index:
    return np.array([len(tokens) for tokens in sequences])


def _starts(lengths: Index) -> Index:
    starts: Index = np.cumsum(lengths) - lengths
    return starts


def _end_to_end(sequences: Sequence[Tokens]) -> Index:
    return np.fromiter((token for tokens in sequences for token in tokens), np.int64)


def _tensor(index: Index, device: torch.device) -> Tensor:
    return torch.from_numpy(index).to(device)
