"""Lessons made of verified answers, each distinct text once."""

from __future__ import annotations

import torch
from torch import Tensor

from hacrl.algorithm import ImitationObjective
from hacrl.methods.base import View
from hacrl.sharing import LossTerm, RewardTable

PASSES = 4
"""Times a step's pool is imitated, by those that share it and by those that have their own."""


def distinct(table: RewardTable, chosen: Tensor) -> Tensor:
    """[j, b, i]: of `chosen`, the first answer with each text to each prompt.

    Agents come in the order of their names, so that their places in the list do not matter.
    """
    kept = torch.zeros_like(chosen)
    seen: set[tuple[int, str]] = set()
    for j in sorted(range(len(table.agents)), key=lambda place: table.agents[place]):
        for b, i in chosen[j].nonzero().tolist():
            key = b, table.samples[j][b][i].text
            kept[j, b, i] = key not in seen
            seen.add(key)
    return kept


def imitation_term(view: View, pool: Tensor, updates: int, passes: int = 1) -> LossTerm:
    """Imitate the texts of `pool[j, b, i]`: every prompt counts the same, however many texts it has.

    -mean over prompts x of 1/|C(x)| * sum over y in C(x) of log pi(y) / c, with c the mean length of the
    pool's texts. The mean over rows that an update takes becomes the mean over prompts by the weights.
    """
    texts = pool.sum((0, 2)).clamp(min=1).double()  # [b], |C(x)|
    rows, prompts = int(pool.sum()), int(pool.any(2).any(0).sum())
    weights = torch.where(
        pool, rows / (max(1, prompts) * texts[None, :, None] * _mean_length(view, pool)), 0.0
    )
    return LossTerm(
        ImitationObjective(),
        weights,
        pool,
        view.equal_weights,
        updates=updates,
        passes=passes,
        complete=True,
    )


def _mean_length(view: View, pool: Tensor) -> float:
    """Tokens of the pool's texts, each counted by the agent that drew it."""
    lengths = [len(view.table.samples[j][b][i].token_ids) for j, b, i in pool.nonzero().tolist()]
    return sum(lengths) / len(lengths) if lengths else 1.0
