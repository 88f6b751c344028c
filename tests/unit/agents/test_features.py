"""What a model makes of a prompt."""

from __future__ import annotations

import pytest
import torch

from hacrl.agents.features import FEATURES, _projection
from hacrl.agents.policy import Policy
from hacrl.algorithm import ContextualCapability
from hacrl.recipe.settings import UpdatesSettings
from hacrl.types import Prompt
from helpers_agents import text_prompts, tiny_model, tiny_tokenizer

PROMPTS = text_prompts(5)


def policy(architecture: str = "qwen3", budget: int = 1000) -> Policy:
    updates = UpdatesSettings(tokens_per_micro_batch=budget)
    return Policy("ada", tiny_model(architecture), tiny_tokenizer(), updates=updates)


@pytest.mark.parametrize("architecture", ["qwen3", "gpt2"])
def test_they_are_the_projected_states_of_the_last_token_and_of_all_tokens(architecture: str):
    ada = policy(architecture)
    model, found = tiny_model(architecture).eval(), ada.features(PROMPTS)
    for prompt, numbers in zip(PROMPTS, found, strict=True):
        ids = torch.tensor([ada.encoder.encode_prompt(prompt)])
        with torch.no_grad():
            (states,) = model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
        expected = torch.cat([states[-1], states.mean(0)]) @ _projection(2 * states.shape[1])
        torch.testing.assert_close(torch.tensor(numbers), expected, rtol=1e-4, atol=1e-5)


def test_neither_the_batch_nor_the_order_changes_them():
    together = torch.tensor(policy().features(PROMPTS))
    apart = torch.tensor(policy(budget=1).features(PROMPTS[::-1])).flip(0)
    torch.testing.assert_close(apart, together, rtol=1e-4, atol=1e-5)


def test_of_a_prompt_that_is_too_long_the_end_is_read():
    ada = policy()
    limit = ada.context_length
    assert limit is not None
    long = Prompt("long", "1" * 3 * limit + "2")
    assert ada.features([long]) == ada.features([Prompt("end", "1" * 2 * limit + "2")])


def test_a_random_projection_nearly_keeps_distances():
    points = torch.randn(20, 2 * 4096, generator=torch.Generator().manual_seed(1))
    projected = points @ _projection(2 * 4096)
    assert projected.shape[1] == FEATURES
    ratio = torch.pdist(projected) / torch.pdist(points)
    assert 0.6 < float(ratio.min()) <= float(ratio.max()) < 1.4


def test_of_eight_agents_with_wide_states_each_is_known_by_its_skill():
    """Eight skills, one for each agent; states of width 4,096 that tell them apart only by their mean."""
    agents, width = 8, 2 * 4096
    generator = torch.Generator().manual_seed(2)
    centres = torch.randn(agents, width, generator=generator)

    def step() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        skill = torch.randint(agents, (96,), generator=generator)
        states = centres[skill] + torch.randn(96, width, generator=generator)
        chance = torch.where(skill == torch.arange(agents)[:, None], 0.9, 0.1)
        shares = (torch.rand(agents, 96, 4, generator=generator) < chance[..., None]).double().mean(2)
        return (states @ _projection(width)).double(), shares, chance

    capability = ContextualCapability(agents, FEATURES)
    for _ in range(5):
        features, shares, _ = step()
        capability.forget()
        capability.observe(features, shares, torch.ones_like(shares, dtype=torch.bool))
    features, _, chance = step()
    belief = capability.believe(features)
    assert float((belief.mean - chance).square().mean()) < 0.02, "one number per agent would have .07"
    assert float((belief.mean.argmax(0) == chance.argmax(0)).float().mean()) > 0.95
