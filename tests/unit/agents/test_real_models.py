"""Real models end to end. Needs weights that are not in the repository: `make models` gets them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.exactness import LIMIT, measure_exactness
from hacrl.agents.backends.choice import choose_backends, decoded_logps
from hacrl.agents.backends.padded import PlainScorer
from hacrl.agents.policy import Policy
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from hacrl.types import Prompt, TrainingRow
from helpers_agents import gspo
from helpers_models import GEMMA3, SMOLLM2, needs, real_tokenizer
from helpers_sharing import HARD_TEXTS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=needs(model), id=model.name) for model in (SMOLLM2, GEMMA3)]
)
def test_responses_and_log_probs_are_those_of_plain_transformers(model: Path) -> None:
    found = measure_exactness(model, prompts=4, max_new=12)
    assert (found.different, found.different_with_stop) == ([], [])
    assert found.stopped > 0
    assert found.tokens > 12
    assert max(found.scoring, found.transformers) < LIMIT


@needs(SMOLLM2)
def test_smollm2_answers_and_learns() -> None:
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
    before = policy.fingerprint()
    rows = tuple(
        TrainingRow(
            prompt_id=rollout.prompt_id,
            prompt_ids=policy.encoder.encode_prompt(prompts[number // 3]),
            response_ids=rollout.token_ids,
            source="smollm2",
            own=True,
            source_mean_logp=sum(rollout.token_logps) / len(rollout.token_logps),
            source_logps=rollout.token_logps,
            advantage=1.0 if rollout.sample == 0 else -0.5,
            omega=1.0,
        )
        for number, rollout in enumerate(rollouts)
    )
    (report,) = policy.update([rows], gspo)
    assert report.grad_norm > 0
    assert policy.fingerprint() != before
    after = policy.score([(row.prompt_ids, row.response_ids) for row in rows])
    change = [sum(new) / len(new) - old for new, old in zip(after, report.mean_logps, strict=True)]
    assert sum(c * row.advantage for c, row in zip(change, rows, strict=True)) > 0


@needs(GEMMA3)
def test_gemma_is_fused_and_right_beyond_its_sliding_window() -> None:
    model = AutoModelForCausalLM.from_pretrained(GEMMA3, dtype=torch.float32).eval()
    backends = choose_backends(model)
    assert backends.names == {"decode": "FusedDecoder", "train": "FusedScorer"}
    words = torch.randint(1000, 200_000, (522,), generator=torch.Generator().manual_seed(0)).tolist()
    assert model.config.sliding_window == 512
    rows = [(tuple(words[:518]), tuple(words[518:]))]
    with torch.no_grad():
        plain = PlainScorer(model).logps(rows)
        found = backends.scorer.logps(rows), decoded_logps(backends.decoder, rows, model.device)
    for logps in found:
        torch.testing.assert_close(logps, plain, rtol=0, atol=1e-3)


@needs(GEMMA3)
def test_gemmas_tokenizer_is_the_published_one() -> None:
    """The GGUF file's own, which has neither merges nor BOS, against the one published for Gemma 3."""
    made, published = real_tokenizer(GEMMA3), real_tokenizer("gemma3")
    texts = (*HARD_TEXTS, Path(__file__).read_text(), "      eight\t\ttabs\n\n\n<start_of_turn>user\n<h1>")
    for text in texts:
        ids = made(text)["input_ids"]
        assert ids == published(text)["input_ids"]
        assert ids[0] == made.bos_token_id
        assert made.decode(ids) == published.decode(ids)
