"""Stop strings: found at the right token by every tokenizer, and what a response is then."""

from __future__ import annotations

import random

import pytest
import torch

from hacrl.agents.policy import Policy
from hacrl.agents.rendering import Rendering
from hacrl.agents.stopping import StopWatch, first_stop, split_ending
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Rollout
from helpers_agents import text_prompts, tiny_model, tiny_policy, tiny_tokenizer
from helpers_sharing import HARD_TEXTS, REAL, SMALL, rendering, tokenizer


def watched_end(encoder: Rendering, ids: list[int], stop: list[str]) -> int | None:
    watch = StopWatch(stop, encoder.decode_response, 1)
    return next((place for place, token in enumerate(ids, start=1) if watch.ends(0, token)), None)


def plain_end(encoder: Rendering, ids: list[int], stop: list[str]) -> int | None:
    """Decodes everything again after every token."""
    ends = range(1, len(ids) + 1)
    return next((end for end in ends if first_stop(encoder.decode_response(ids[:end]), stop)), None)


def some_stops(rng: random.Random, text: str) -> list[str]:
    """One to three pieces of the text."""
    stops = set()
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text))
        stops.add(text[start : start + rng.randint(1, 6)])
    return sorted(stop for stop in stops if "\ufffd" not in stop)


@pytest.mark.parametrize("name", [*SMALL, *REAL])
def test_a_stop_string_is_found_at_the_token_that_completes_it(name: str) -> None:
    encoder, rng = rendering(name), random.Random(name)
    for text in HARD_TEXTS:
        ids = list(encoder.encode_response(text))
        written = encoder.decode_response(ids)
        for _ in range(8 if written else 0):
            if stop := some_stops(rng, written):
                assert watched_end(encoder, ids, stop) == plain_end(encoder, ids, stop) is not None, stop


@pytest.mark.parametrize("name", [*SMALL, *REAL])
def test_tokens_in_any_order_are_followed_as_well(name: str) -> None:
    """As an untrained model draws them: broken UTF-8, special tokens, characters in several tokens."""
    encoder, rng = rendering(name), random.Random(name)
    byte_tokens = [token for character in "é日🙂\n" for token in encoder.encode_response(character)]
    found = 0
    for _ in range(150):
        vocabulary = range(len(tokenizer(name))) if rng.random() < 0.5 else byte_tokens or range(9)
        ids = rng.choices(vocabulary, k=rng.randint(1, 30))
        written = encoder.decode_response(ids)
        if stop := some_stops(rng, written) if written else []:
            assert watched_end(encoder, ids, stop) == plain_end(encoder, ids, stop), (ids, stop)
            found += 1
    assert found > 10


def test_only_a_few_tokens_are_decoded_at_a_time() -> None:
    longest = 0

    def decode(ids: tuple[int, ...]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return bytes(ids).decode(errors="replace")

    watch = StopWatch(["#### end"], decode, 1)
    assert not any(watch.ends(0, byte) for byte in "a long text, 日本語, #### en".encode() * 20)
    assert not any(watch.ends(0, 0xE6) for _ in range(100))  # never a character
    assert [watch.ends(0, byte) for byte in b"#### end"] == [False] * 7 + [True]
    assert longest <= 16


def test_the_first_stop_string_counts_and_the_text_ends_before_or_after_it() -> None:
    assert first_stop("a b c", ["c", "b"]) == "b"
    assert first_stop("a b c", ["b c", "b"]) == "b c"
    assert first_stop("a b c", ["d"]) is None
    assert split_ending("17.\n\nQ", "\n\n", include=False) == ("17.", "\n\nQ")
    assert split_ending("17.\n\nQ", "\n\n", include=True) == ("17.\n\n", "Q")
    assert split_ending("17", None, include=False) == ("17", "")


def sampled(policy: Policy, **changes: object) -> list[Rollout]:
    settings = {"max_new_tokens": 30, **changes}
    return policy.sample(text_prompts(12), 6, SamplingSettings(**settings), seed=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
def test_a_response_is_the_one_without_stop_strings_up_to_the_first(architecture: str) -> None:
    policy = tiny_policy(architecture)
    stop = ("a", "b7", "=", "xy")
    ended = 0
    for whole, rollout in zip(sampled(policy), sampled(policy, stop=stop), strict=True):
        found = first_stop(whole.text, stop)
        if found is None:
            assert (rollout.token_ids, rollout.text, rollout.stop) == (whole.token_ids, whole.text, None)
            continue
        ended += 1
        text = whole.text[: whole.text.index(found)]
        kept = len(text) + len(found)  # one token per character; special tokens have no text
        assert (rollout.text, rollout.ending, rollout.stop) == (text, found, found)
        assert rollout.finish_reason == "stop"
        assert rollout.token_ids == whole.token_ids[: len(rollout.token_ids)]
        assert policy.encoder.decode_response(rollout.token_ids) == text + found
        assert len(rollout.token_ids) >= kept
        assert rollout.token_logps == pytest.approx(whole.token_logps[: len(rollout.token_ids)], abs=1e-4)
    assert ended > 30


def test_the_text_may_include_the_stop_string() -> None:
    policy = tiny_policy()
    without, included = sampled(policy, stop=("a",)), sampled(policy, stop=("a",), include_stop=True)
    assert {rollout.stop for rollout in included} == {"a", None}
    for rollout, other in zip(included, without, strict=True):
        assert rollout.token_ids == other.token_ids
        assert rollout.text == other.text + ("a" if rollout.stop else "")
        assert rollout.ending == ""


def test_a_stop_string_at_the_token_limit_is_complete() -> None:
    policy = tiny_policy()
    texts = [policy.encoder.decode_response(rollout.token_ids[:5]) for rollout in sampled(policy)]
    chosen = next(row for row, text in enumerate(texts) if len(text) == 5)  # no special tokens
    stop = texts[chosen]
    rollout = sampled(policy, stop=(stop,), max_new_tokens=5)[chosen]
    assert (rollout.finish_reason, rollout.text, rollout.ending) == ("stop", "", stop)
    cut = sampled(policy, stop=(stop,), max_new_tokens=4)[chosen]
    assert (cut.finish_reason, cut.stop) == ("length", None)


def test_greedy_responses_with_stop_strings_are_those_of_transformers() -> None:
    policy, model, stop = tiny_policy("llama"), tiny_model("llama"), ["b", "7"]  # not in "<pad>"
    sampling = SamplingSettings(max_new_tokens=20, stop=tuple(stop)).as_greedy()
    prompts = text_prompts(20)
    assert_as_transformers(policy, model, tiny_tokenizer(), prompts, sampling, at_least=5)


def assert_as_transformers(policy, model, tokens, prompts, sampling, at_least):  # type: ignore[no-untyped-def]
    rollouts = policy.sample(prompts, 1, sampling, seed=0)
    for prompt, rollout in zip(prompts, rollouts, strict=True):
        ids = torch.tensor([policy.encoder.encode_prompt(prompt)])
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampling.max_new_tokens,
            do_sample=False,
            stop_strings=list(sampling.stop),
            tokenizer=tokens,
        )
        assert rollout.token_ids == tuple(found[0, ids.shape[1] :].tolist())
    assert sum(rollout.stop is not None for rollout in rollouts) >= at_least
