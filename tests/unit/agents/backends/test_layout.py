"""Buckets: nothing lost, little padded."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hacrl.agents.backends.layout import BUCKET_OVERHEAD, lay_out, length_buckets
from helpers_agents import random_rows

CPU = torch.device("cpu")


@given(lengths=st.lists(st.integers(0, 60), max_size=80), most=st.integers(1, 8))
def test_every_positive_length_is_in_one_bucket(lengths: list[int], most: int) -> None:
    buckets = length_buckets(lengths, most)
    assert sorted(i for bucket in buckets for i in bucket) == [i for i, n in enumerate(lengths) if n > 0]
    assert len(buckets) <= most
    longest = [max(lengths[i] for i in bucket) for bucket in buckets]
    assert longest == sorted(longest)


def test_buckets_trade_padding_for_passes() -> None:
    assert length_buckets([5, 5, 6, 6], 4) == [[0, 1, 2, 3]]
    far = [1] * BUCKET_OVERHEAD + [50] * 3
    assert [len(bucket) for bucket in length_buckets(far, 4)] == [BUCKET_OVERHEAD, 3]
    assert [len(bucket) for bucket in length_buckets(far, 1)] == [BUCKET_OVERHEAD + 3]


@given(seed=st.integers(0, 50), most=st.integers(1, 4))
def test_the_layout_holds_every_token_once(seed: int, most: int) -> None:
    rows = random_rows(3, 4, seed=seed)
    layout = lay_out(rows, most, CPU)
    spread = layout.spread(layout.targets.double())
    for row, (_, response) in enumerate(rows):
        assert spread[row, : len(response)].tolist() == list(response)
        assert not spread[row, len(response) :].any()
    # The state that predicts a token is the one of the token before it.
    before = torch.cat([layout.prompt_ids[:, -1], *(bucket.ids.flatten() for bucket in layout.buckets)])
    predecessors = layout.spread(before[layout.needed].double())
    for row, (prompt, response) in enumerate(rows):
        assert predecessors[row, : len(response)].tolist() == [prompt[-1], *response[:-1]]
