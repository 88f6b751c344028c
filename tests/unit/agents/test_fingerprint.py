"""Fingerprints change with every change of a weight that training can make, and with nothing else."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import Tensor

from hacrl.agents.fingerprint import WORDS, fingerprint

BLOCK = 2 * WORDS
"""Weights in fp32 of one block."""


def of(*tensors: Tensor) -> str:
    return fingerprint((str(number), tensor) for number, tensor in enumerate(tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 1001), (2 * BLOCK + 3,)])
def test_a_change_of_any_one_weight_by_one_bit_is_seen(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(shape, generator=generator, dtype=dtype)
    start, flat = of(weights), weights.view(-1)
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[weights.itemsize]
    places = torch.randint(flat.numel(), (20,), generator=generator).tolist()
    for place in {0, flat.numel() - 1, *places}:
        for bit in (0, 8 * weights.itemsize - 1):
            one = torch.zeros_like(flat.view(integers))
            one[place] = 1 << bit if bit == 0 else torch.iinfo(integers).min
            flat.view(integers).bitwise_xor_(one)
            assert of(weights) != start
            flat.view(integers).bitwise_xor_(one)
    assert of(weights) == start


def test_changes_that_cancel_in_a_plain_sum_are_seen() -> None:
    """All norms move from 1 by the same step; two rows, two blocks or two tensors trade places."""
    norms, moved = torch.ones(64), torch.ones(64) - 1e-6
    assert of(norms) != of(moved)
    rows = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    assert of(rows) != of(rows[[0, 2, 1, 3, 4, 5]])
    blocks = torch.arange(2.0 * BLOCK)
    assert of(blocks) != of(blocks.roll(BLOCK))
    assert of(rows, rows + 1) != of(rows + 1, rows)


def test_names_types_and_shapes_count() -> None:
    zeros = torch.zeros(4, 4)
    seen = {
        of(zeros),
        of(zeros.view(2, 8)),
        of(zeros.bfloat16()),
        of(zeros[:2], zeros[2:]),
        fingerprint([("w", zeros)]),
    }
    assert len(seen) == 5


def test_memory_layout_and_gradients_do_not_count() -> None:
    weights = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    strided = weights.t().contiguous().t()
    assert not strided.is_contiguous()
    assert of(strided) == of(weights) == of(weights.clone().requires_grad_())
    for rows in (4, 5):  # whole 64-bit words and not, both at an odd place in their storage
        assert of(torch.cat([torch.zeros(1, 7), weights[:rows]])[1:]) == of(weights[:rows])


def test_as_many_different_fingerprints_as_different_weights() -> None:
    """3,000 small steps of one weight after the other: no two states have the same digest."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(50, generator=generator)
    seen, contents = set(), set()
    for place in torch.randint(50, (3000,), generator=generator).tolist():
        weights[place] = torch.nextafter(weights[place], torch.tensor(torch.inf))
        seen.add(of(weights))
        contents.add(hashlib.sha256(weights.numpy().tobytes()).digest())
    assert len(seen) == len(contents) == 3000
