"""A real model end to end. Needs weights that are not in the repository: `make models` gets them."""

from __future__ import annotations

import pytest

from hacrl.agents.policy import Policy
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from hacrl.types import Prompt, TrainingRow
from helpers_agents import gspo
from helpers_models import SMOLLM2, needs_smollm2

pytestmark = [pytest.mark.slow, needs_smollm2]


def test_smollm2_samples_scores_and_learns() -> None:
    policy = Policy.load("smollm2", SMOLLM2, optimiser=OptimiserSettings(learning_rate=1e-5, kl=0.0))
    assert policy.backends == {"decode": "FusedDecoder", "train": "FusedScorer"}
    prompts = [
        Prompt(id="sum", text="What is 2 + 3? Answer with one number."),
        Prompt(id="capital", text="What is the capital of France? Answer in one word."),
    ]
    greedy = policy.sample(prompts, 1, SamplingSettings(max_new_tokens=24).as_greedy(), seed=0)
    assert "5" in greedy[0].text
    assert "Paris" in greedy[1].text

    rollouts = policy.sample(prompts, 3, SamplingSettings(max_new_tokens=16), seed=0)
    encoded = {prompt.id: policy.encoder.encode_prompt(prompt) for prompt in prompts}
    scores = policy.score([(encoded[r.prompt_id], r.token_ids) for r in rollouts])
    for rollout, score in zip(rollouts, scores, strict=True):
        assert rollout.token_logps == pytest.approx(score, abs=1e-4)

    before = policy.fingerprint()
    rows = tuple(
        TrainingRow(
            prompt_id=rollout.prompt_id,
            prompt_ids=encoded[rollout.prompt_id],
            response_ids=rollout.token_ids,
            source="smollm2",
            own=True,
            source_mean_logp=sum(rollout.token_logps) / len(rollout.token_logps),
            source_logps=rollout.token_logps,
            advantage=1.0 if rollout.sample == 0 else -0.5,
            omega=1.0,
        )
        for rollout in rollouts
    )
    (report,) = policy.update([rows], gspo)
    assert report.grad_norm > 0
    assert policy.fingerprint() != before
    after = policy.score([(row.prompt_ids, row.response_ids) for row in rows])
    change = [sum(new) / len(new) - old for new, old in zip(after, report.mean_logps, strict=True)]
    assert sum(c * row.advantage for c, row in zip(change, rows, strict=True)) > 0
