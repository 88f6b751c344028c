import dataclasses

import pytest
import torch

from hacrl.bench.peer.workload import (
    ARCHITECTURES,
    EOS,
    PAD,
    PROMPT_TOKENS,
    SIZES,
    Workload,
    make_model,
    make_prompts,
    make_tokenizer,
    reward,
)
from helpers_peer import TINY


def probabilities(work: Workload) -> torch.Tensor:
    """Next-token probabilities after every word of every prompt."""
    model, tokenizer = make_model(work), make_tokenizer(work.size)
    with torch.no_grad():
        logits = [model(torch.tensor([tokenizer(p.text)["input_ids"]])).logits[0] for p in make_prompts(work)]
    return torch.cat(logits).softmax(-1)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("hazard", [0.07, 0.3])
def test_the_mean_probability_of_eos_is_the_hazard(arch: str, hazard: float) -> None:
    found = probabilities(dataclasses.replace(TINY, arch=arch, eos_hazard=hazard))
    assert found[:, EOS].mean().item() == pytest.approx(hazard, abs=1e-4)
    assert found[:, PAD].max() < 1e-6


def test_hazard_zero_never_stops() -> None:
    assert probabilities(dataclasses.replace(TINY, eos_hazard=0.0))[:, EOS].max() < 1e-6


@pytest.mark.parametrize(("size", "parameters"), [("S", 0.8e6), ("M", 5.75e6)])
def test_the_sizes_are_the_stated_ones(size: str, parameters: float) -> None:
    model = make_model(Workload(SIZES[size]))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(parameters, rel=0.01)


def test_copies_of_a_model_are_equal_and_leave_the_global_random_state_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, second = make_model(TINY), make_model(TINY)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    for name, tensor in first.state_dict().items():
        torch.testing.assert_close(tensor, second.state_dict()[name], rtol=0, atol=0)


def test_prompts_have_one_token_per_word_and_lengths_within_the_bounds() -> None:
    tokenizer = make_tokenizer(TINY.size)
    for prompt in make_prompts(TINY):
        ids = tokenizer(prompt.text)["input_ids"]
        assert [f"w{i}" for i in ids] == prompt.text.split()
        assert PROMPT_TOKENS[0] <= len(ids) <= PROMPT_TOKENS[1]


def test_the_reward_is_the_parity_of_the_sum() -> None:
    assert [reward(ids) for ids in ([2, 3], [2, 4], [7])] == [1.0, 0.0, 1.0]
