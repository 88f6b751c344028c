"""What a model makes of a prompt, in a few numbers: its last hidden states, projected at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from hacrl.agents.backends.interfaces import Scorer, Tokens

FEATURES = 64
"""Numbers per prompt, whatever the width of the model."""


def prompt_features(scorer: Scorer, prompts: Sequence[Tokens]) -> Tensor:
    """[b, FEATURES]: the last layer's states of the last token and, on average, of all tokens of a prompt.

    Both are projected by a matrix that depends on nothing but the model's width. A random projection
    nearly keeps the distances between prompts, so what is linear in the states stays nearly linear.
    """
    states, mask = scorer.states(prompts)
    lengths = mask.sum(1)
    places = torch.arange(mask.shape[1], device=mask.device)
    last = states[torch.arange(len(prompts), device=states.device), (places * mask).argmax(1)].float()
    mean = (states.float() * mask[..., None]).sum(1) / lengths[:, None]
    both: Tensor = torch.cat([last, mean], 1).cpu()
    return both @ _projection(both.shape[1])


@lru_cache(maxsize=4)
def _projection(width: int) -> Tensor:
    """[width, FEATURES], the same in every process: entries of variance 1 / FEATURES."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(width, FEATURES, generator=generator) / math.sqrt(FEATURES)
