"""The interfaces of all backends, and the padding they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

Tokens = tuple[int, ...]
Row = tuple[Tokens, Tokens]
"""The tokens of a prompt and of a response to it."""


class UnsupportedModel(ValueError):
    """A backend cannot run this model; the message says why."""


class Session(Protocol):
    """Responses being decoded side by side."""

    def advance(self, tokens: Tensor) -> Tensor:
        """Append one token to each row -> logits [rows, vocabulary] of the next one."""

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these: the others are finished."""


class Decoder(Protocol):
    """Starts decoding sessions."""

    def start(self, prompts: Sequence[Tokens], prompt_of_row: Tensor) -> tuple[Tensor, Session]:
        """Compute each prompt once -> logits [rows, vocabulary] of the first tokens, and the session."""


class Scorer(Protocol):
    """Computes log-probs of given responses, with gradients unless they are switched off."""

    shares_prompts: bool
    """Whether rows with the same prompt pay for it once."""

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens in the order of the rows; 0 where padded."""

    def states(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """The last layer's states [b, t, d] of all tokens of each prompt, and where there is one."""


def response_mask(rows: Sequence[Row], device: torch.device) -> Tensor:
    """[s, t] True where a row has a response token."""
    lengths = torch.tensor([len(response) for _, response in rows])
    return (torch.arange(int(lengths.max())) < lengths[:, None]).to(device)


def left_padded(sequences: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and mask [rows, longest]: every sequence ends in the last column."""
    width = max(map(len, sequences))
    ids = torch.tensor([(0,) * (width - len(tokens)) + tuple(tokens) for tokens in sequences])
    starts = torch.tensor([width - len(tokens) for tokens in sequences])
    return ids.to(device), (torch.arange(width) >= starts[:, None]).to(device)


def right_padded(sequences: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and mask [rows, longest]: every sequence starts in the first column."""
    width = max(map(len, sequences))
    ids = torch.tensor([tuple(tokens) + (0,) * (width - len(tokens)) for tokens in sequences])
    lengths = torch.tensor([len(tokens) for tokens in sequences])
    return ids.to(device), (torch.arange(width) < lengths[:, None]).to(device)
