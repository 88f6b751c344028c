"""The layout of a batch in which each prompt is computed once for all its responses.

Prompts are padded on the left, so that all end in the same column. Responses (without their last token,
which nothing follows) are padded on the right, in a few buckets of similar length. The hidden states of both,
laid end to end, are what `Layout.needed` points into: a prompt's last state predicts the first token of its
responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from hacrl.agents.backends.interfaces import Row, left_padded, right_padded

BUCKET_OVERHEAD = 64
"""Padding tokens that cost about as much as one more bucket."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Responses of similar length."""

    ids: Tensor
    """[rows, length] response tokens without the last one, padded on the right."""
    prompt_of_row: Tensor
    """[rows] index into the prompts."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One batch of rows, cut into prompts and buckets of responses."""

    prompt_ids: Tensor
    """[prompts, length] padded on the left."""
    prompt_mask: Tensor
    buckets: list[Bucket]
    needed: Tensor
    """[n] for each response token: its predicting state among prompts' last states and bucket states."""
    targets: Tensor
    """[n] the response tokens themselves."""
    places: Tensor
    """[n] where their log-probs go in the flattened [s, t] result."""
    shape: tuple[int, int]

    def spread(self, logps: Tensor) -> Tensor:
        """Log-probs [n] of the response tokens -> [s, t] in the order of the rows, 0 where padded."""
        flat = logps.new_zeros(self.shape[0] * self.shape[1])
        return flat.index_copy(0, self.places, logps).view(self.shape)


def lay_out(rows: Sequence[Row], most_buckets: int, device: torch.device) -> Layout:
    """Plan the computation of these rows with at most `most_buckets` buckets of responses."""
    numbers: dict[tuple[int, ...], int] = {}
    prompt_of_row = [numbers.setdefault(prompt, len(numbers)) for prompt, _ in rows]
    prompt_ids, prompt_mask = left_padded(list(numbers), device)
    width = max(len(response) for _, response in rows)

    first = np.asarray(prompt_of_row)
    needed, places = [first], [np.arange(len(rows)) * width]
    targets = [np.asarray([response[0] for _, response in rows])]
    buckets: list[Bucket] = []
    offset = len(numbers)
    for members in length_buckets([len(response) - 1 for _, response in rows], most_buckets):
        ids, mask = right_padded([rows[row][1][:-1] for row in members], device)
        buckets.append(Bucket(ids, torch.from_numpy(first[members]).to(device)))
        row, column = np.nonzero(mask.cpu().numpy())
        needed.append(offset + row * ids.shape[1] + column)
        places.append(np.asarray(members)[row] * width + column + 1)
        targets += [np.asarray(rows[member][1][1:]) for member in members]
        offset += ids.numel()
    return Layout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        buckets=buckets,
        needed=torch.from_numpy(np.concatenate(needed)).to(device),
        targets=torch.from_numpy(np.concatenate(targets)).to(device),
        places=torch.from_numpy(np.concatenate(places)).to(device),
        shape=(len(rows), width),
    )


def length_buckets(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Indices of the positive lengths in at most `most` groups of similar length, little padding in all.

    Neighbouring groups are merged, cheapest first, while too many or while padding costs less than a group.
    """
    order = sorted((index for index, length in enumerate(lengths) if length > 0), key=lambda i: lengths[i])
    groups: list[list[int]] = []
    for index in order:
        if groups and lengths[groups[-1][0]] == lengths[index]:
            groups[-1].append(index)
        else:
            groups.append([index])
    while len(groups) > 1:
        padding = [len(short) * (lengths[long[-1]] - lengths[short[-1]]) for short, long in pairwise(groups)]
        cheapest = min(range(len(padding)), key=padding.__getitem__)
        if len(groups) <= most and padding[cheapest] >= BUCKET_OVERHEAD:
            break
        groups[cheapest : cheapest + 2] = [groups[cheapest] + groups[cheapest + 1]]
    return groups
