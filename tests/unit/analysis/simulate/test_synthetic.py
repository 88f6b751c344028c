from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from hacrl.analysis.doctor.models import look_at
from hacrl.analysis.simulate.synthetic import (
    ARCHITECTURES,
    EOS,
    PAD,
    PROMPT_TOKENS,
    Size,
    make_model,
    make_prompts,
    make_tokenizer,
    rewards,
    save_agent,
)

TINY = Size(hidden=32, layers=2, heads=2, vocab=40)
PROMPTS = make_prompts(TINY, 6)


def probabilities(model: PreTrainedModel) -> torch.Tensor:
    """Next-token probabilities after every word of every prompt."""
    tokenizer = make_tokenizer(TINY)
    with torch.no_grad():
        logits = [model(torch.tensor([tokenizer(p.text)["input_ids"]])).logits[0] for p in PROMPTS]
    return torch.cat(logits).softmax(-1)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("hazard", [0.07, 0.3])
def test_the_mean_probability_of_eos_is_the_hazard(arch: str, hazard: float):
    found = probabilities(make_model(TINY, PROMPTS, arch=arch, eos_hazard=hazard))
    assert found[:, EOS].mean().item() == pytest.approx(hazard, abs=1e-4)
    assert found[:, PAD].max() < 1e-6


def test_hazard_zero_never_stops():
    assert probabilities(make_model(TINY, PROMPTS))[:, EOS].max() < 1e-6


def test_copies_of_a_model_are_equal_and_leave_the_global_random_state_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, second = make_model(TINY, PROMPTS), make_model(TINY, PROMPTS)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    for name, tensor in first.state_dict().items():
        torch.testing.assert_close(tensor, second.state_dict()[name], rtol=0, atol=0)


def test_prompts_have_one_token_per_word_and_lengths_within_the_bounds():
    tokenizer = make_tokenizer(TINY)
    for prompt in PROMPTS:
        ids = tokenizer(prompt.text)["input_ids"]
        assert [f"w{i}" for i in ids] == str(prompt.text).split()
        assert PROMPT_TOKENS[0] <= len(ids) <= PROMPT_TOKENS[1]


def test_the_facts_of_a_size_are_those_of_its_model(tmp_path: Path):
    found = look_at(str(save_agent(tmp_path, make_model(TINY, PROMPTS), TINY)), None)
    assert found is not None
    assert found.parameters == pytest.approx(TINY.facts.parameters, rel=0.02)  # norms are left out
    sizes = {"parameters": TINY.facts.parameters, "trained": TINY.facts.trained}
    exact = replace(found, **sizes, context=None, linear=0)  # nothing is quantised in a simulation
    assert exact == TINY.facts


def test_the_reward_is_the_parity_of_the_sum():
    assert rewards([[2, 3], [2, 4], [7]]) == [1.0, 0.0, 1.0]
