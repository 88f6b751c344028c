from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.analysis.simulate.synthetic import Size
from hacrl.analysis.simulate.work import Workload, forward_flops, micro_batches, sampling, updating

FACTS = Size(hidden=64, layers=3, heads=4, vocab=100).facts
LOAD = Workload(
    prompts=4,
    prompt_tokens=30,
    responses=32,
    response_tokens=200,
    longest_response=200,
    trained_tokens=32 * 200,
    own_share=1.0,
    sources=1,
    updates=2,
    rows_at_once=512,
    tokens_per_micro_batch=16384,
)


def test_forward_pass_by_hand():
    """Two operations per weight and token, the head where a token is predicted, four per pair attended."""
    layers = 3 * (64 * 2 * (64 + 32) + 3 * 64 * 192)
    counted = forward_flops(FACTS, 7, predicted=5, attended=11)
    assert counted == 2 * layers * 7 + 2 * 64 * 100 * 5 + 4 * 64 * 3 * 11


def test_mean_lengths_count_what_single_tokens_do_for_long_responses():
    """To the token: a prompt of 30 once, 199 tokens fed of each of its 8 responses, all of them predicted."""
    fed, pairs = 30 + 8 * 199, 30 * 31 // 2 + 8 * (199 * 30 + 199 * 200 // 2)
    exact = 4 * forward_flops(FACTS, fed, predicted=1 + 8 * 199, attended=pairs)
    assert sampling(FACTS, LOAD).flops == pytest.approx(exact, rel=0.01)
    assert updating(FACTS, LOAD).flops == pytest.approx(3 * exact, rel=0.01)


def test_memory_traffic_of_sampling_by_hand():
    weights = 3 * (64 * 2 * (64 + 32) + 3 * 64 * 192) + 64 * 100
    cache = 32 * 200 * (30 + 100) * 2 * 3 * 32 * 4
    logits = 32 * 200 * 8 * 4 * 100
    assert sampling(FACTS, LOAD).bytes == 201 * 4 * weights + cache + logits
    assert sampling(FACTS, LOAD).passes == 201 * 3


def test_rows_beyond_max_rows_are_sampled_in_further_batches():
    halves = sampling(FACTS, replace(LOAD, rows_at_once=16))
    assert halves.passes == 2 * sampling(FACTS, LOAD).passes
    assert halves.flops == sampling(FACTS, LOAD).flops


@pytest.mark.parametrize(("budget", "expected"), [(16384, 2), (3200, 4), (1, 6520)])
def test_every_update_has_micro_batches_of_its_own(budget: int, expected: int):
    assert micro_batches(replace(LOAD, tokens_per_micro_batch=budget)) == expected


def test_the_reference_and_recomputing_cost_forward_passes():
    plain = updating(FACTS, LOAD).flops / 3
    assert updating(FACTS, replace(LOAD, kl=True, own_share=0.5)).flops == pytest.approx(3.5 * plain)
    assert updating(FACTS, replace(LOAD, checkpointing=True)).flops == pytest.approx(4 * plain)


@given(st.integers(1, 4).map(lambda power: 2**power))
def test_ranks_share_the_arithmetic(ranks: int):
    load = replace(LOAD, prompts=32, responses=256, trained_tokens=256 * 200)
    sharded = replace(load, ranks=ranks)
    assert sampling(FACTS, sharded).flops * ranks == pytest.approx(sampling(FACTS, load).flops)
    assert updating(FACTS, sharded).flops * ranks == pytest.approx(updating(FACTS, load).flops)
    assert updating(FACTS, sharded).bytes * ranks >= updating(FACTS, load).bytes
