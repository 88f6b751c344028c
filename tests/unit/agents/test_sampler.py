"""What is drawn: faithful to the model's distribution, and the same in every batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from hacrl.agents import sampler
from hacrl.agents.policy import Policy
from hacrl.agents.sampler import Stream, nucleus, pick, restricted
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Prompt
from helpers_agents import EOS, PAD, VOCABULARY, Live, text_prompts, tiny_model, tiny_policy, tiny_tokenizer

CHI_SQUARE_999 = 74.74
"""99.9% point of the chi-square distribution with 41 degrees of freedom: a vocabulary of 42."""


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = counts.sum() * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_first_and_second_tokens_follow_the_model(temperature: float) -> None:
    """20,000 responses to one prompt; the second token is tested given the likeliest first token."""
    policy = tiny_policy("qwen3")
    prompt = Prompt(id="p", text="ab")
    sampling = SamplingSettings(max_new_tokens=2, temperature=temperature, max_rows=20_000)
    rollouts = policy.sample([prompt], 20_000, sampling, seed=7)
    first = np.bincount([r.token_ids[0] for r in rollouts], minlength=VOCABULARY)
    likeliest = int(np.bincount([r.token_ids[0] for r in rollouts if r.token_ids[0] != EOS]).argmax())
    second = np.bincount(
        [r.token_ids[1] for r in rollouts if r.token_ids[0] == likeliest], minlength=VOCABULARY
    )

    model = tiny_model("qwen3")
    ids = [*policy.encoder.encode_prompt(prompt), likeliest]
    with torch.no_grad():
        probabilities = (model(torch.tensor([ids])).logits[0] / temperature).softmax(-1).double().numpy()
    for counts, expected in ((first, probabilities[-2]), (second, probabilities[-1])):
        assert chi_square(*merge_rare(counts, expected)) < CHI_SQUARE_999


@pytest.mark.parametrize("vocabulary", [1 << 14, 20_001])
def test_a_large_vocabulary_is_drawn_from_in_two_steps_with_the_same_result(
    vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same inverse CDF: nearly all tokens are equal, the others next to each other, by rounding."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(64, vocabulary)
    logits[0] = -torch.inf
    logits[0, vocabulary - 1] = 0.0  # the very last word, certain
    uniforms = torch.rand(64)
    uniforms[1], uniforms[2] = 0.0, 1.0 - 2**-23
    tokens, logps = pick(logits, uniforms, SamplingSettings())
    monkeypatch.setattr("hacrl.agents.sampler._LARGE_VOCABULARY", 1 << 30)
    plain, _ = pick(logits, uniforms, SamplingSettings())
    assert (tokens == plain).float().mean() > 0.9
    exact = logits.double().softmax(-1).cumsum(-1)
    reached, before = (exact.gather(1, (tokens - n).clamp(min=0)[:, None]).squeeze(1) for n in (0, 1))
    assert bool((reached >= uniforms - 1e-5).all())
    assert bool((before <= uniforms + 1e-5)[tokens > 0].all())
    torch.testing.assert_close(logps, logits.log_softmax(-1).gather(1, tokens[:, None]).squeeze(1))
    assert tokens[0] == vocabulary - 1


def merge_rare(counts: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put all tokens expected fewer than 10 times in one cell, where chi-square is no good approximation."""
    rare = counts.sum() * probabilities < 10
    cells = (
        np.append(counts[~rare], counts[rare].sum()),
        np.append(probabilities[~rare], probabilities[rare].sum()),
    )
    keep = cells[1] > 0
    return cells[0][keep], cells[1][keep]


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(),
        SamplingSettings().as_greedy(),
        SamplingSettings(temperature=0.7),
        SamplingSettings(top_k=50),
        SamplingSettings(top_p=0.9),
        SamplingSettings(min_p=0.01),
        SamplingSettings(temperature=1.3, top_k=500, top_p=0.8, min_p=0.001),
    ],
    ids=["plain", "greedy", "temperature", "top-k", "top-p", "min-p", "all"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pieces_of_rows_draw_the_same_bits_in_less_memory(
    settings: SamplingSettings, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large vocabulary is drawn from a few rows at a time; the last piece has fewer of them."""
    rows, vocabulary, at_once = 23, 20_000, 2
    torch.manual_seed(0)
    logits, uniforms = (3 * torch.randn(rows, vocabulary)).to(dtype), torch.rand(rows)
    monkeypatch.setattr(sampler, "_PICKED_AT_ONCE", rows * vocabulary)
    whole = pick(logits, uniforms, settings)
    monkeypatch.setattr(sampler, "_PICKED_AT_ONCE", at_once * vocabulary)
    with Live() as live:
        pieces = pick(logits, uniforms, settings)
    for ours, theirs in zip(pieces, whole, strict=True):
        assert torch.equal(ours, theirs)
    assert live.most < 12 * at_once * vocabulary * 4 < rows * vocabulary * 8


@pytest.mark.parametrize("architecture", ["qwen3", "gpt2"])
def test_neither_batch_nor_order_nor_other_samples_change_a_draw(architecture: str) -> None:
    policy = tiny_policy(architecture)
    prompts = text_prompts(6)
    together = policy.sample(prompts, 4, SamplingSettings(max_new_tokens=12), seed=3)
    assert [(r.prompt_id, r.sample) for r in together] == [(p.id, i) for p in prompts for i in range(4)]
    drawn = {(r.prompt_id, r.sample): r.token_ids for r in together}
    backwards = policy.sample(prompts[::-1], 2, SamplingSettings(max_new_tokens=12), seed=3)
    small_batches = policy.sample(prompts, 4, SamplingSettings(max_new_tokens=12, max_rows=3), seed=3)
    for rollout in (*backwards, *small_batches):
        assert rollout.token_ids == drawn[rollout.prompt_id, rollout.sample]


def test_seed_agent_prompt_and_sample_all_matter() -> None:
    streams = [
        Stream(*key) for key in ((0, "a", "p", 0), (1, "a", "p", 0), (0, "b", "p", 0), (0, "a", "q", 0))
    ]
    streams.append(Stream(0, "a", "p", 1))
    assert len({tuple(stream.uniforms(4)) for stream in streams}) == 5
    again = Stream(0, "a", "p", 0)
    assert np.array_equal(Stream(0, "a", "p", 0).uniforms(7)[3:], (again.uniforms(3), again.uniforms(4))[1])


def test_uniforms_are_below_one_even_after_rounding() -> None:
    draws = Stream(0, "a", "p", 0).uniforms(100_000)
    assert draws.dtype == np.float32
    assert 0 <= draws.min() < draws.max() <= 1 - 2**-23
    assert abs(draws.mean() - 0.5) < 0.005


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "gpt2"])
def test_greedy_is_hugging_face_greedy(architecture: str) -> None:
    policy, model = tiny_policy(architecture), tiny_model(architecture)
    prompts = text_prompts(4)
    for prompt, rollout in zip(
        prompts,
        policy.sample(prompts, 1, SamplingSettings(max_new_tokens=10).as_greedy(), seed=0),
        strict=True,
    ):
        ids = torch.tensor([policy.encoder.encode_prompt(prompt)])
        config = GenerationConfig(max_new_tokens=10, do_sample=False, eos_token_id=EOS, pad_token_id=0)
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        assert rollout.token_ids == tuple(expected[0, ids.shape[1] :].tolist())


def test_any_of_several_eos_ends_a_response() -> None:
    model = tiny_model("qwen3")
    model.generation_config.eos_token_id = [EOS, PAD]
    several = Policy("ada", model, tiny_tokenizer())
    assert several.encoder.eos_ids == (EOS, PAD)
    assert several.encoder.eos_id == EOS
    rollouts = several.sample(text_prompts(8), 8, SamplingSettings(max_new_tokens=30), seed=0)
    assert {r.token_ids[-1] for r in rollouts if r.finish_reason == "stop"} == {EOS, PAD}
    for rollout in rollouts:
        assert not {EOS, PAD} & set(rollout.token_ids[:-1])
        assert (rollout.finish_reason == "stop") == (rollout.token_ids[-1] in (EOS, PAD))
        assert rollout.finish_reason == "stop" or len(rollout.token_ids) == 30


def test_log_probs_are_at_temperature_one_whatever_the_sampling() -> None:
    policy = tiny_policy("qwen3")
    prompts = text_prompts(3)
    rollouts = policy.sample(
        prompts, 3, SamplingSettings(max_new_tokens=8, temperature=1.7, top_p=0.8), seed=1
    )
    encoded = {p.id: policy.encoder.encode_prompt(p) for p in prompts}
    scores = policy.score([(encoded[r.prompt_id], r.token_ids) for r in rollouts])
    for rollout, score in zip(rollouts, scores, strict=True):
        assert rollout.token_logps == pytest.approx(score, abs=2e-5)


def test_a_response_may_use_what_the_context_leaves() -> None:
    model = tiny_model("qwen3")
    model.config.max_position_embeddings = 10
    policy = Policy("ada", model, tiny_tokenizer())
    prompts = [Prompt(id="long", text="abcdefgh"), Prompt(id="short", text="a")]
    rollouts = policy.sample(prompts, 8, SamplingSettings(max_new_tokens=5), seed=0)
    lengths = {(r.prompt_id, len(r.token_ids)) for r in rollouts if r.finish_reason == "length"}
    assert lengths == {("long", 2), ("short", 5)}


@given(
    weights=st.lists(st.floats(0.001, 1), min_size=2, max_size=20),
    top_p=st.floats(0.05, 0.99),
    seed=st.integers(0, 99),
)
def test_top_p_draws_from_the_smallest_set_that_reaches_it(
    weights: list[float], top_p: float, seed: int
) -> None:
    probabilities = torch.tensor([weights]).double()
    probabilities /= probabilities.sum()
    kept = nucleus(probabilities, top_p)[0]
    inside, outside = probabilities[0][kept > 0], probabilities[0][kept == 0]
    assert inside.sum() >= top_p - 1e-9
    assert inside.sum() - inside.min() < top_p + 1e-9
    assert not len(outside) or outside.max() <= inside.min()
    uniforms = torch.from_numpy(Stream(seed, "a", "p", 0).uniforms(1))
    logits = probabilities.log().float()
    tokens, _ = pick(logits, uniforms, SamplingSettings(max_new_tokens=1, top_p=top_p))
    assert nucleus(logits.log_softmax(-1).exp(), top_p)[0, int(tokens)] > 0


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(2, -1)
    uniforms = torch.tensor([0.0, 1 - 2**-23])
    tokens, logps = pick(logits, uniforms, SamplingSettings(max_new_tokens=1))
    assert tokens.tolist() == [1, 3]
    assert logps.tolist() == pytest.approx([-0.6931472, -0.6931472])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"top_k": 2}, [0.4, 0.3, 0.0, 0.0]),
        ({"top_k": 9}, [0.4, 0.3, 0.2, 0.1]),
        ({"min_p": 0.5}, [0.4, 0.3, 0.2, 0.0]),
        ({"top_p": 0.5}, [0.4, 0.3, 0.0, 0.0]),
        ({"top_k": 2, "top_p": 0.5}, [0.4 / 0.7, 0.0, 0.0, 0.0]),  # 0.57 of what top-k leaves
        ({"min_p": 0.7, "top_k": 3, "top_p": 0.6}, [0.4 / 0.7, 0.3 / 0.7, 0.0, 0.0]),
    ],
)
def test_what_top_k_min_p_and_top_p_leave(settings: dict[str, float], expected: list[float]) -> None:
    found = restricted(torch.tensor([[0.4, 0.3, 0.2, 0.1]]), SamplingSettings(**settings))
    assert found[0].tolist() == pytest.approx(expected)


def test_restrictions_are_those_of_transformers_in_vllms_order() -> None:
    logits = torch.randn(64, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 2
    sampling = SamplingSettings(top_k=12, min_p=0.05, top_p=0.9, temperature=0.7)
    scores = logits / 0.7
    for warper in (MinPLogitsWarper(0.05), TopKLogitsWarper(12), TopPLogitsWarper(0.9)):
        scores = warper(None, scores)
    probabilities = restricted((logits / 0.7).softmax(-1), sampling)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    torch.testing.assert_close(probabilities, scores.softmax(-1))
    uniforms = torch.rand(64, generator=torch.Generator().manual_seed(1))
    tokens, logps = pick(logits, uniforms, sampling)
    assert (probabilities.gather(1, tokens[:, None]) > 0).all()
    assert torch.equal(logps, logits.log_softmax(-1).gather(1, tokens[:, None]).squeeze(1))


@pytest.mark.parametrize("vocabulary", [7, 1 << 14, (1 << 14) + 3])
def test_rows_that_are_not_numbers_have_tokens_that_exist_and_no_finite_log_prob(vocabulary):
    logits = torch.zeros(3, vocabulary)
    logits[1] = torch.nan
    logits[2, 3] = torch.nan
    tokens, logps = pick(logits, torch.tensor([0.5, 0.5, 0.5]), SamplingSettings())
    assert (tokens < vocabulary).all()
    assert logps.isfinite().tolist() == [True, False, False]
