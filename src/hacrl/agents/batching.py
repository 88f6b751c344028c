"""Which rows are computed at once, and on which rank."""

from __future__ import annotations

from collections.abc import Sequence

from hacrl.agents.backends.interfaces import Row


def micro_batches(rows: Sequence[Row], budget: int, shares_prompts: bool) -> list[list[int]]:
    """Indices of the rows in groups of at most `budget` tokens (or one row, if it is larger than that).

    With `shares_prompts`, a prompt counts once for its responses, which stay together. Without, padding
    counts: rows of similar length are together, each as long as the longest of them.
    """
    batches: list[list[int]] = []
    tokens = 0
    for row in _in_order(rows, shares_prompts):
        prompt, response = rows[row]
        length = len(prompt) + len(response)
        if shares_prompts:
            known = bool(batches) and rows[batches[-1][-1]][0] == prompt
            tokens += len(response) if known else length
        else:  # the longest so far
            tokens = length * (len(batches[-1]) + 1 if batches else 1)
        if not batches or tokens > budget:
            batches.append([])
            tokens = length
        batches[-1].append(row)
    return batches


def shares(rows: Sequence[Row], count: int, shares_prompts: bool) -> list[list[int]]:
    """Indices of the rows in so many parts of about equally many tokens.

    With `shares_prompts`, consecutive parts have at most one prompt in common. Without, all parts have the
    same mix of lengths.
    """
    order = _in_order(rows, shares_prompts)
    if not shares_prompts:
        return [order[part::count] for part in range(count)]
    parts: list[list[int]] = [[] for _ in range(count)]
    before, total = 0, sum(len(prompt) + len(response) for prompt, response in rows)
    for row in order:
        length = len(rows[row][0]) + len(rows[row][1])
        middle = before + length / 2
        parts[int(middle * count / total)].append(row)
        before += length
    return parts


def _in_order(rows: Sequence[Row], shares_prompts: bool) -> list[int]:
    if shares_prompts:
        return sorted(range(len(rows)), key=lambda row: (len(rows[row][0]), rows[row][0]))
    return sorted(range(len(rows)), key=lambda row: len(rows[row][0]) + len(rows[row][1]))
