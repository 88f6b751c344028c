"""The policy as it was before training: what the KL divergence is measured against."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hacrl.agents.engine import Row, Scorer
from hacrl.agents.learner import ReferenceLogps
from hacrl.agents.ranks import Ranks


def frozen_copy(model: PreTrainedModel, scorer: Scorer, ranks: Ranks) -> ReferenceLogps:
    """Log-probs under the model as it is now, computed the way `scorer` does; sharded over the ranks."""
    frozen = copy.deepcopy(model).requires_grad_(False)
    copied_scorer: Scorer = type(scorer)(frozen)  # type: ignore[call-arg]
    ranks.shard(frozen)
    return torch.no_grad()(copied_scorer.logps)


def without_adapters(adapted: Any, scorer: Scorer) -> ReferenceLogps:
    """Log-probs under a peft model with its adapters switched off: no copy needed."""

    @torch.no_grad()
    def logps(rows: Sequence[Row]) -> Tensor:
        with adapted.disable_adapter():
            return scorer.logps(rows)

    return logps
