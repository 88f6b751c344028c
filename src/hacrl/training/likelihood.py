"""How likely a learner finds the answers it hears."""

from __future__ import annotations

import math
from statistics import fmean

import torch
from torch import Tensor

from hacrl.agents.agent import Agent
from hacrl.sharing import Reencoder, RewardTable


def likelihood(
    learner: Agent, tokens: Reencoder, table: RewardTable, chosen: Tensor, *, changed: bool = False
) -> Tensor:
    """[j, b, i]: the mean log-prob per token of the chosen answers, EOS included; NaN for all others.

    What the learner drew itself has its log-probs, unless it has `changed` since then; the rest is written in
    its tokens and scored.
    """
    found = torch.full(chosen.shape, math.nan, dtype=torch.float64)
    places, rows = [], []
    for j, b, i in chosen.nonzero().tolist():
        trajectory = table.samples[j][b][i]
        if trajectory.source == learner.name and not changed:
            found[j, b, i] = fmean(trajectory.token_logps)
        elif not isinstance(encoded := tokens.encode(trajectory, complete=True), str):
            places.append((j, b, i))
            rows.append((encoded.prompt_ids, encoded.response_ids))
    scores = learner.score(rows) if rows else []
    for place, logps in zip(places, scores, strict=True):
        found[place] = fmean(logps)
    return found
