"""Responses through a pool: they arrive as they were sent, and only confirmed ones are used."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hacrl.pool import POOL
from hacrl.pool.entry import read_entry, sign
from hacrl.sharing.pooled import Confirmed, KnownPrompts, as_entries, confirm, restored
from hacrl.types import Prompt, Trajectory
from helpers_pool import KEY, entry

SORT = Prompt("train-1", "sort 31=", "sort", {"answer": "13"})
CHAT = Prompt("train-2", ({"role": "user", "content": "add 1 2"},), "add", {"answer": "3"})
TEST = Prompt("test-1", "sort 42=", "sort", {"answer": "24"})
KNOWN = KnownPrompts([SORT, CHAT], [TEST])


def exact(prompts: list[Prompt], texts: list[str]) -> list[float | None]:
    pairs = zip(prompts, texts, strict=True)
    return [None if text == "?" else float(text == prompt.columns["answer"]) for prompt, text in pairs]


def trajectory(prompt: Prompt = SORT, **changes: Any) -> Trajectory:
    drawn = Trajectory(
        step=3,
        prompt_id=prompt.id,
        source="eve",
        sample=0,
        fingerprint="f",
        text=prompt.columns["answer"],
        reward=1.0,
        finish_reason="stop",
        token_ids=(5, 6, 2),
        token_logps=(-0.5, -0.25, -4.0),
    )
    return replace(drawn, **changes)


def sent(*trajectories: Trajectory, **options: Any) -> list[Any]:
    """The entries of trajectories after a journey."""
    prompts = {prompt.id: prompt for prompt in (SORT, CHAT)}
    entries = as_entries(trajectories, prompts, task="digits", verifier="exact", writer="theirs", **options)
    return [read_entry(sign(each, KEY), KEY)[0] for each in entries]


def received(entries: list[Any], **options: Any) -> Confirmed:
    return confirm(entries, KNOWN, exact, step=7, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"finish_reason": "length"},
        {"stop": "\n", "ending": "\n."},
        {"token_ids": (5, 6, 2, 9), "token_logps": (-1.0, -2.0, -3.0, -4.0)},
        {"text": "", "token_ids": (2,), "token_logps": (-0.5,), "reward": 0.0},
    ],
)
def test_a_peer_finds_the_same_in_a_pool_as_in_one_run(changes: dict[str, Any]):
    drawn = trajectory(**changes)
    (arrived,) = received(sent(drawn)).trajectories
    assert len(arrived.token_ids) == len(drawn.token_ids)
    assert arrived.logp_count == drawn.logp_count
    assert math.isclose(arrived.logp_sum, drawn.logp_sum)
    same = ("prompt_id", "text", "reward", "finish_reason", "stop", "ending", "written")
    assert [getattr(arrived, key) for key in same] == [getattr(drawn, key) for key in same]
    assert (arrived.source, arrived.step, arrived.sample) == (POOL, 7, 0)


def test_prompts_are_found_by_their_text_whatever_their_id():
    confirmed = received(sent(trajectory(SORT), trajectory(CHAT), trajectory(SORT, sample=1)))
    assert confirmed.prompts == (SORT, CHAT)
    assert [(t.prompt_id, t.sample) for t in confirmed.trajectories] == [
        ("train-1", 0),
        ("train-2", 0),
        ("train-1", 1),
    ]
    assert not confirmed.refused


def test_responses_without_a_reward_are_not_sent():
    assert sent(trajectory(reward=None)) == []


def test_what_cannot_be_confirmed_is_refused_and_counted():
    confirmed = received(
        [
            entry(prompt="sort 31=", response="13", reward=1.0),
            entry(prompt="sort 31=", response="31", reward=1.0, sample=1),
            entry(prompt="sort 31=", response="13", reward=0.5, sample=2),
            entry(prompt="sort 31=", response="?", reward=1.0),
            entry(prompt="sort 42=", response="24", reward=1.0),
            entry(prompt="sort 99=", response="99", reward=1.0),
        ]
    )
    assert [t.text for t in confirmed.trajectories] == ["13"]
    assert confirmed.refused == {
        "reward_differs": 2,
        "reward_unconfirmed": 1,
        "test_prompt": 1,
        "unknown_prompt": 1,
    }


def test_trusted_sources_are_believed_where_nothing_is_known_and_only_there():
    offered = [
        entry(prompt="sort 99=", response="99", source="ada", kind="sort"),
        entry(prompt="sort 99=", response="99", source="eve"),
        entry(prompt="sort 31=", response="31", source="ada"),
        entry(prompt="sort 42=", response="24", source="ada"),
    ]
    confirmed = received(offered, trust=["ada"])
    (prompt,) = confirmed.prompts
    assert (prompt.text, prompt.kind, prompt.columns) == ("sort 99=", "sort", {})
    assert confirmed.refused == {"unknown_prompt": 1, "reward_differs": 1, "test_prompt": 1}


def test_methods_with_ratios_need_log_probs():
    without = sent(trajectory(), logps=False)
    assert without[0].logp is None
    assert received(without).trajectories
    assert received(without, needs_logps=True).refused == {"no_logp": 1}


def test_what_was_confirmed_is_restored_without_scoring():
    confirmed = received(sent(trajectory(), trajectory(CHAT), trajectory(sample=1)))
    again = restored(confirmed.entries, KNOWN, step=7)
    assert again == confirmed
