import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.flops import forward_flops, step_flops
from hacrl.analysis.simulate.synthetic import Size
from helpers_benchmarks import TINY


@pytest.mark.parametrize("length", [1, 5, 12])
def test_one_sequence_against_torchs_counter(length: int) -> None:
    size = TINY.size
    model = TINY.make_model()
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randint(2, size.vocab, (1, length)), use_cache=False)
    # The module attends to every pair of tokens; only those that look back are useful.
    wasted = 4 * size.heads * size.head_dim * size.layers * length * (length - 1) // 2
    # A prompt of one token and a response that feeds the others: the head is needed everywhere.
    expected = forward_flops(size, prompt=1, responses=[length])
    assert counter.get_total_flops() - wasted == expected


def test_a_prompt_is_counted_once_for_all_its_responses() -> None:
    size = Size(hidden=8, layers=1, heads=2, vocab=10)
    # One more response of n tokens adds n - 1 fed tokens, their attention and n - 1 uses of the head.
    added = forward_flops(size, 5, [4, 4]) - forward_flops(size, 5, [4])
    per_token = 2 * (8 * (8 + 8 + 4 + 4) + 3 * 8 * 24)
    attention = 4 * 8 * ((5 + 1) + (5 + 2) + (5 + 3))
    assert added == 3 * per_token + attention + 3 * 2 * 8 * 10


def test_a_response_of_one_token_needs_only_its_prompt() -> None:
    size = TINY.size
    assert forward_flops(size, 7, [1]) == forward_flops(size, 7, [1, 1, 1])


def test_a_step_is_one_forward_and_one_training_pass_over_every_group() -> None:
    lengths = [n % 5 + 1 for n in range(TINY.responses)]
    groups = [lengths[start : start + TINY.samples] for start in range(0, len(lengths), TINY.samples)]
    prompts = [len(prompt.text.split()) for prompt in TINY.make_prompts()]
    forward = sum(forward_flops(TINY.size, p, g) for p, g in zip(prompts, groups, strict=True))
    assert step_flops(TINY, lengths) == 4 * forward
    assert step_flops(dataclasses.replace(TINY, replay=True), lengths) == 3 * forward
