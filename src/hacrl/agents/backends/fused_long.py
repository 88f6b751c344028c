"""Attention of long rows: no mask as large as the square of a row is ever written.

A row's prompt and response are one sequence here, so that attention is plainly causal: padding at the end of
a row is after all of its tokens. The outputs of the prompt's tokens are not used, which costs little where
the response is long. With a sliding window, rows are cut into pieces of that length, each of which attends to
itself and to the piece before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LongBlock:
    """Whole sequences; slots after a row's end point at an arbitrary token, whose output is not used."""

    tokens: Tensor
    """[rows, t] indices of tokens."""

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """Queries [n, heads, w], keys and values [n, kv heads, w] of all tokens -> [rows * t, heads * w]."""
        queries, keys, values = (as_rectangle(part, self.tokens) for part in (queries, keys, values))
        if window is None or window >= self.tokens.shape[1]:
            attended = _causal(queries, keys, values, scale)
        else:
            attended = windowed(queries, keys, values, scale, window)
        return attended.transpose(1, 2).flatten(2).flatten(0, 1)


def windowed(queries: Tensor, keys: Tensor, values: Tensor, scale: float, window: int) -> Tensor:
    """Causal attention of [rows, heads, t, w] to the last `window` tokens, itself included; t > window."""
    length = queries.shape[2]
    pieces = -(-length // window)
    queries, keys, values = (_cut(part, pieces, window) for part in (queries, keys, values))
    first = _causal(queries[:, :, 0], keys[:, :, 0], values[:, :, 0], scale)
    distance = torch.arange(window, 2 * window)[:, None] - torch.arange(2 * window)
    seen = ((distance >= 0) & (distance < window)).to(queries.device)
    others = _attention(
        _by_piece(queries[:, :, 1:]),
        _by_piece(torch.cat([keys[:, :, :-1], keys[:, :, 1:]], 3)),
        _by_piece(torch.cat([values[:, :, :-1], values[:, :, 1:]], 3)),
        scale,
        seen,
    )
    rest = others.view(len(first), pieces - 1, *others.shape[1:]).transpose(1, 2).flatten(2, 3)
    return torch.cat([first, rest], 2)[:, :, :length]


def as_rectangle(tokens: Tensor, slots: Tensor) -> Tensor:
    """[n, heads, w] of all tokens -> [rows, heads, t, w] of a rectangle of them."""
    return tokens.index_select(0, slots.flatten()).view(*slots.shape, *tokens.shape[1:]).transpose(1, 2)


def _cut(part: Tensor, pieces: int, length: int) -> Tensor:
    """[rows, heads, t, w] -> [rows, heads, pieces, length, w], padded at the end."""
    rows, heads, tokens, width = part.shape
    padded = F.pad(part, (0, 0, 0, pieces * length - tokens))
    return padded.reshape(rows, heads, pieces, length, width)


def _by_piece(parts: Tensor) -> Tensor:
    """[rows, heads, pieces, t, w] -> [rows * pieces, heads, t, w]."""
    return parts.transpose(1, 2).flatten(0, 1)


def _causal(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    return _attention(queries, keys, values, scale, None)


def _attention(queries: Tensor, keys: Tensor, values: Tensor, scale: float, seen: Tensor | None) -> Tensor:
    """Plainly causal unless it is said which keys are `seen`."""
    gqa = queries.shape[1] != keys.shape[1]
    return F.scaled_dot_product_attention(
        queries, keys, values, seen, is_causal=seen is None, scale=scale, enable_gqa=gqa
    )
