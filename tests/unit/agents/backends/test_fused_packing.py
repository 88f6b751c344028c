"""No padding outside attention: every prompt token once, every response token but the last."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from hacrl.agents.backends import fused_packing
from hacrl.agents.backends.choice import decoded_logps
from hacrl.agents.backends.fused import FusedDecoder, FusedScorer
from hacrl.agents.backends.fused_long import LongBlock
from hacrl.agents.backends.fused_packing import (
    MASKED,
    SHORTEST_PREFIX,
    Block,
    attention_by_products,
    common_prefix,
    pack,
)
from hacrl.agents.backends.padded import PlainScorer
from helpers_agents import FUSED, Largest, random_rows, tiny_model

CPU = torch.device("cpu")


@given(
    seed=st.integers(0, 200), prompts=st.integers(1, 4), samples=st.integers(1, 5), longest=st.integers(1, 40)
)
def test_tokens_positions_and_targets(seed: int, prompts: int, samples: int, longest: int) -> None:
    rows = random_rows(prompts, samples, longest, seed)
    packing = pack(rows, CPU, torch.float32)
    distinct = list(dict.fromkeys(prompt for prompt, _ in rows))
    expected = [token for prompt in distinct for token in prompt]
    expected_positions = [position for prompt in distinct for position in range(len(prompt))]
    for prompt, response in rows:
        expected += response[:-1]
        expected_positions += range(len(prompt), len(prompt) + len(response) - 1)
    assert packing.ids.tolist() == expected
    assert packing.positions.tolist() == expected_positions

    # Every response token is predicted from the token before it.
    before = packing.ids[packing.live][packing.states]
    spread, spread_before = packing.spread(packing.targets.double()), packing.spread(before.double())
    for row, (prompt, response) in enumerate(rows):
        assert spread[row, : len(response)].tolist() == list(response)
        assert spread_before[row, : len(response)].tolist() == [prompt[-1], *response[:-1]]
        assert not spread[row, len(response) :].any()


@given(seed=st.integers(0, 200), samples=st.integers(1, 5), longest=st.integers(1, 40))
def test_every_token_attends_to_its_own_past_and_nothing_else(seed: int, samples: int, longest: int) -> None:
    """With equal scores, attention is the mean of the values it may look at: compare with that mean."""
    rows = random_rows(3, samples, longest, seed)
    packing = pack(rows, CPU, torch.float32)
    count = len(packing.ids)
    values = torch.arange(count, dtype=torch.float32).view(count, 1, 1).expand(-1, -1, 8).contiguous()
    flat = torch.zeros(count, 1, 8)
    means = packing.attend(flat, flat, values, 1.0)[:, 0].tolist()

    starts: dict[tuple[int, ...], int] = {}
    expected: list[float] = []
    for prompt, _ in rows:
        if prompt not in starts:
            starts[prompt] = len(expected)
            expected += [starts[prompt] + n / 2 for n in range(len(prompt))]
    for prompt, response in rows:
        past = list(range(starts[prompt], starts[prompt] + len(prompt)))
        for _ in response[:-1]:
            past.append(len(expected))
            expected.append(sum(past) / len(past))
    assert torch.allclose(torch.tensor(means), torch.tensor(expected), rtol=1e-4, atol=1e-4)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 200),
    samples=st.integers(1, 5),
    longest=st.integers(1, 40),
    window=st.integers(1, 50) | st.none(),
    beginning=st.sampled_from([(), (1, 2) * SHORTEST_PREFIX]),
)
def test_whole_rows_attend_as_masked_blocks_do(
    seed: int, samples: int, longest: int, window: int | None, beginning: tuple[int, ...]
) -> None:
    rows = [(beginning + prompt, response) for prompt, response in random_rows(3, samples, longest, seed)]
    generator = torch.Generator().manual_seed(seed)
    masked = pack(rows, CPU, torch.float32, [window])
    with (
        patch.object(fused_packing, "MASKED_AT_ONCE", 0),
        patch.object(fused_packing, "LONGER_PROMPTS", 1 << 20),
    ):
        whole = pack(rows, CPU, torch.float32, [window])
    assert {type(block) for block in whole.blocks} == {LongBlock}
    inputs = [torch.randn(len(masked.ids), heads, 8, generator=generator) for heads in (4, 2, 2)]
    found = whole.attend(*inputs, 0.4, window)
    assert torch.allclose(found, masked.attend(*inputs, 0.4, window), rtol=1e-4, atol=1e-5)
    for name in ("ids", "positions", "live", "states", "targets", "places"):
        assert torch.equal(getattr(whole, name), getattr(masked, name)), name


@pytest.mark.parametrize("window", [None, 64])
def test_long_rows_need_memory_in_proportion_to_their_tokens(window: int | None) -> None:
    """Two prompts of 30 tokens, responses of up to 3,000: a mask would have 9 million entries."""
    rows = [((number,) * 30, (1,) * length) for number in (2, 3) for length in (5, 400, 3000)]
    with Largest() as largest:
        packing = pack(rows, CPU, torch.float32, [window])
        inputs = [torch.randn(len(packing.ids), heads, 8, requires_grad=True) for heads in (4, 2, 2)]
        torch.autograd.backward(packing.attend(*inputs, 0.4, window).sum())
    assert largest.elements < 3 * len(packing.ids) * 4 * 8


def test_short_responses_to_long_prompts_stay_behind_them() -> None:
    """Whole rows would compute the prompt's attention again for every response."""
    rows = [((2,) * 3000, (1,) * 300) for _ in range(5)]
    assert [type(block) for block in pack(rows, CPU, torch.float32).blocks] == [LongBlock, Block]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_attention_by_products_is_torchs(kv_heads: int, causal: bool) -> None:
    generator = torch.Generator().manual_seed(kv_heads)
    length, seen = 5, 5 if causal else 9

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).transpose(1, 2).requires_grad_()

    inputs = random(3, length, 6, 8), random(3, seen, kv_heads, 8), random(3, seen, kv_heads, 8)
    mask = None
    if not causal:
        mask = torch.zeros(3, 1, length, seen).masked_fill(
            torch.rand(3, 1, length, seen, generator=generator) < 0.4, MASKED
        )
    truth = F.scaled_dot_product_attention(*inputs, mask, is_causal=causal, scale=0.3, enable_gqa=True)
    found = attention_by_products(*inputs, mask, 0.3)
    weight = torch.randn(truth.shape, generator=generator)
    expected = [truth, *torch.autograd.grad((truth * weight).sum(), inputs)]
    for one, other in zip(
        [found, *torch.autograd.grad((found * weight).sum(), inputs)], expected, strict=True
    ):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("longest", [1, 12])
@pytest.mark.parametrize("architecture", FUSED)
def test_a_beginning_that_all_prompts_share_is_computed_once(architecture: str, longest: int) -> None:
    """Log-probs, gradients and decoding are those of the plain forward; sliding windows end inside of it."""
    beginning = random_rows(1, 1, 1, seed=3)[0][0] * SHORTEST_PREFIX
    rows = [(beginning + prompt, response) for prompt, response in random_rows(3, 3, longest, seed=5)]
    distinct = list(dict.fromkeys(prompt for prompt, _ in rows))
    packing = pack(rows, CPU, torch.float32)
    fed = sum(len(response) - 1 for _, response in rows)
    shared = common_prefix(distinct)
    assert shared[: len(beginning)] == beginning
    assert len(packing.ids) == len(shared) + sum(len(p) - len(shared) for p in distinct) + fed
    for prompt, slots in zip(distinct, packing.prompts, strict=True):
        assert tuple(packing.ids[slots[-len(prompt) :]].tolist()) == prompt

    model = tiny_model(architecture)
    found = [scorer.logps(rows) for scorer in (FusedScorer(model), PlainScorer(model))]
    assert torch.allclose(*found, rtol=1e-4, atol=1e-4)
    weights = list(model.parameters())  # a vision tower gets no gradient: zeros on both sides
    fused, plain = (torch.autograd.grad(logps.sum(), weights, materialize_grads=True) for logps in found)
    for one, other in zip(fused, plain, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))
    decoded = decoded_logps(FusedDecoder(model), rows, CPU)
    assert torch.allclose(decoded, found[1], rtol=1e-4, atol=1e-4)


def test_only_a_long_beginning_is_shared() -> None:
    long = tuple(range(SHORTEST_PREFIX))
    assert common_prefix([(*long, 7, 1), (*long, 7, 2), (*long, 7, 1, 5)]) == (*long, 7)
    assert common_prefix([long, (*long, 1)]) == (), "a token of every prompt is left, and 15 are too few"
    assert common_prefix([(*long, 1)]) == ()
    assert common_prefix([(*long[:-1], 50, 1), (*long[:-1], 51, 1)]) == ()
