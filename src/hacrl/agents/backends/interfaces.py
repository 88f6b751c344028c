"""The interfaces of all backends, and the padding and log-prob functions they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Tokens = tuple[int, ...]
Row = tuple[Tokens, Tokens]
"""The tokens of a prompt and of a response to it."""

LOGITS_AT_ONCE = 1 << 26
"""Most logits (256 MB in fp32) held at once; larger heads are computed in pieces, twice."""


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


def target_logps(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probs of the targets [n] under logits [n, vocabulary], in fp32."""
    return -F.cross_entropy(logits.float(), targets, reduction="none")


def head_logps(head: nn.Module, hidden: Tensor, targets: Tensor, vocabulary: int) -> Tensor:
    """Log-probs of the targets [n] given hidden states [n, d]; in pieces if the logits would be huge."""

    def piece(part: Tensor, part_targets: Tensor) -> Tensor:
        return target_logps(head(part), part_targets)

    size = max(1, LOGITS_AT_ONCE // vocabulary)
    if len(targets) <= size:
        return piece(hidden, targets)
    pieces = zip(torch.split(hidden, size), torch.split(targets, size), strict=True)
    return torch.cat([checkpoint(piece, *pair, use_reentrant=False) for pair in pieces])
