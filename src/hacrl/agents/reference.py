"""The policy before training, which the KL divergence is measured against."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hacrl.agents.backends.interfaces import Row, Scorer
from hacrl.agents.ranks import Ranks

ReferenceLogps = Callable[[Sequence[Row]], Tensor]
"""Log-probs [s, t] under the policy before training."""


class FrozenCopy:
    """Log-probs under a copy of the model, computed the way `scorer` does; sharded over the ranks."""

    def __init__(self, model: PreTrainedModel, scorer: Scorer, ranks: Ranks) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False)
        self._scorer: Scorer = type(scorer)(self.model)  # type: ignore[call-arg]
        ranks.shard(self.model)

    @torch.no_grad()
    def __call__(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t]."""
        return self._scorer.logps(rows)


def without_adapters(adapted: Any, scorer: Scorer) -> ReferenceLogps:
    """Log-probs under a peft model with its adapters switched off: no copy needed."""

    @torch.no_grad()
    def logps(rows: Sequence[Row]) -> Tensor:
        with adapted.disable_adapter():
            return scorer.logps(rows)

    return logps
