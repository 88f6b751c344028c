"""Stop strings: they end a response whose model has written no EOS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

Decode = Callable[[Sequence[int]], str]

_INCOMPLETE = "\ufffd"
"""What a decoder writes for a character whose last bytes are still to come."""
_MOST_PENDING = 8
"""Tokens that may wait for a character to be completed; it has at most four bytes."""


class StopWatch:
    """Follows responses token by token and tells when one contains a stop string.

    Only the newest tokens are decoded, together with those of the character before them: some tokenizers
    write a token differently at the start of a text. Of the earlier text only a tail is kept, as long as the
    beginning of a stop string can be.
    """

    def __init__(self, stop: Sequence[str], decode: Decode, responses: int) -> None:
        self._stop = tuple(stop)
        self._decode = lru_cache(maxsize=1 << 16)(decode)
        self._tail_length = max(map(len, stop)) - 1
        self._tails = [""] * responses
        self._before: list[tuple[int, ...]] = [()] * responses
        """The tokens of the last complete piece of text."""
        self._pending: list[tuple[int, ...]] = [()] * responses
        """The tokens after those: none, or an incomplete character."""
        self.found: dict[int, str] = {}
        """Response -> the stop string that ended it."""

    def observe(self, rows: Tensor, tokens: Tensor, finished: Tensor) -> Tensor:
        """[rows] bool: the responses that these tokens end; finished ones are left alone."""
        columns = torch.stack([rows, tokens, finished.long()], 1).tolist()  # off the device at once
        return torch.tensor(
            [not done and self.ends(row, token) for row, token, done in columns], device=rows.device
        )

    def ends(self, response: int, token: int) -> bool:
        """Append one token; whether the response contains a stop string now."""
        pending = (*self._pending[response], token)
        piece = self._piece(self._before[response], pending)
        text = self._tails[response] + piece
        stop = first_stop(text, self._stop)
        if stop is not None:
            self.found[response] = stop
        elif piece.endswith(_INCOMPLETE) and len(pending) < _MOST_PENDING:
            self._pending[response] = pending
        else:
            self._tails[response] = text[-self._tail_length :] if self._tail_length else ""
            self._before[response], self._pending[response] = pending, ()
        return stop is not None

    def _piece(self, before: tuple[int, ...], pending: tuple[int, ...]) -> str:
        """The text that the pending tokens add."""
        known, both = self._decode(before), self._decode(before + pending)
        return both[len(known) :] if both.startswith(known) else self._decode(pending)


def first_stop(text: str, stop: Sequence[str]) -> str | None:
    """The stop string that comes first in the text; of several at the same place, the first in the list."""
    places = {string: text.find(string) for string in stop}
    found = [string for string in stop if places[string] >= 0]
    return min(found, key=places.__getitem__, default=None)


class Ended(NamedTuple):
    """A decoded response in two parts."""

    text: str
    ending: str
    """The stop string, unless the text includes it, and what its last token wrote after it."""


def split_ending(written: str, stop: str | None, include: bool) -> Ended:
    """What was written, cut in front of the stop string, or after it with `include`."""
    place = -1 if stop is None else written.find(stop)
    if stop is None or place < 0:
        return Ended(written, "")
    end = place + len(stop) if include else place
    return Ended(written[:end], written[end:])
