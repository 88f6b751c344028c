"""Choices that several methods make: groups by source, a draw among answers, the strongest agent."""

from __future__ import annotations

import random
from collections import defaultdict

import torch
from torch import Tensor

from hacrl.algorithm import own_advantages
from hacrl.methods.base import View


def group_advantages(view: View) -> Tensor:
    """[j, b, i]: every answer compared with its own source's answers to the prompt."""
    values, _ = own_advantages(view.table.rewards, mask=view.table.mask)
    return values.sum(0)


def rng(view: View) -> random.Random:
    """The same draws for the same learner, step and prompts."""
    return random.Random("/".join((view.learner, str(view.table.step), *view.table.prompt_ids)))


def one_each(view: View, candidates: Tensor) -> Tensor:
    """[j, b, i]: of the candidates for each prompt, one drawn uniformly.

    Agents come in the order of their names, so that their places in the list do not matter.
    """
    by_prompt: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for j, b, i in candidates.nonzero().tolist():
        by_prompt[b].append((view.table.agents[j], i, j))
    drawn = torch.zeros_like(candidates)
    draws = rng(view)
    for b in sorted(by_prompt):
        _, i, j = draws.choice(sorted(by_prompt[b]))
        drawn[j, b, i] = True
    return drawn


def strongest(view: View) -> int:
    """The place of the most capable agent the learner hears, itself included; of equals the first by name.

    One that will be heard later counts: nobody takes its place until then.
    """
    heard = [
        j
        for j, agent in enumerate(view.table.agents)
        if j == view.k or agent in view.awaited or view.table.mask[j].any()
    ]
    beaten = {j: sum(bool(view.omega[j, other] > 1) for other in heard) for j in heard}
    return min(heard, key=lambda j: (-beaten[j], view.table.agents[j]))
