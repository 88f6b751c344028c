"""Micro-batches and the parts of several ranks: nothing lost, no budget exceeded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hacrl.agents.batching import micro_batches, shares
from helpers_agents import random_rows


@given(seed=st.integers(0, 50), budget=st.integers(1, 120), shares_prompts=st.booleans())
def test_micro_batches_respect_the_budget(seed: int, budget: int, shares_prompts: bool) -> None:
    """Without shared prompts padding counts too: it is computed like everything else."""
    rows = random_rows(4, 4, seed=seed)
    batches = micro_batches(rows, budget, shares_prompts)
    assert sorted(row for batch in batches for row in batch) == list(range(len(rows)))
    for batch in batches:
        if shares_prompts:
            prompts = {rows[row][0] for row in batch}
            tokens = sum(map(len, prompts)) + sum(len(rows[row][1]) for row in batch)
        else:
            tokens = len(batch) * max(
                len(prompt) + len(rest) for prompt, rest in (rows[row] for row in batch)
            )
        assert tokens <= budget or len(batch) == 1


def test_micro_batches_keep_a_prompt_together() -> None:
    rows = [((1, 2, 3), (4,)), ((5, 6, 7), (4,))] * 3
    assert [len(batch) for batch in micro_batches(rows, 6, True)] == [3, 3]
    assert [len(batch) for batch in micro_batches(rows, 6, False)] == [1] * 6


def test_a_long_row_is_not_padded_to() -> None:
    rows = [((1,), (2,) * length) for length in (99, 1, 1, 99, 1)]
    assert micro_batches(rows, 200, False) == [[1, 2, 4], [0, 3]]


@given(seed=st.integers(0, 50), count=st.integers(1, 6), shares_prompts=st.booleans())
def test_ranks_get_equal_parts_and_prompts_together(seed: int, count: int, shares_prompts: bool) -> None:
    rows = random_rows(5, 6, seed=seed)
    parts = shares(rows, count, shares_prompts)
    assert sorted(row for part in parts for row in part) == list(range(len(rows)))
    lengths = [len(prompt) + len(response) for prompt, response in rows]
    held = [sum(lengths[row] for row in part) for part in parts]
    assert max(held) - min(held) <= 2 * max(lengths)
    if shares_prompts:
        prompts = [len({rows[row][0] for row in part}) for part in parts]
        assert sum(prompts) <= 5 + count - 1
