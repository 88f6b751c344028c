"""A model's scores of any number of rows, computed in micro-batches without gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.agents.backends.interfaces import Row, Scorer, Tokens
from hacrl.agents.batching import micro_batches
from hacrl.agents.errors import explain_out_of_memory
from hacrl.agents.features import prompt_features

Scores = list[tuple[float, ...]]


@dataclass(frozen=True)
class BatchedScorer:
    """The scorer of one agent, at most `tokens` at a time."""

    agent: str
    scorer: Scorer
    tokens: int

    def logps(self, rows: Sequence[Row]) -> Scores:
        """Log-prob of every response token."""
        scores = self._in_batches(
            "scoring", rows, self.scorer.logps, shares_prompts=self.scorer.shares_prompts
        )
        return [values[: len(response)] for values, (_, response) in zip(scores, rows, strict=True)]

    def features(self, prompts: Sequence[Tokens]) -> Scores:
        """What the model makes of each prompt (see `hacrl.agents.features`)."""

        def features(rows: Sequence[Row]) -> Tensor:
            return prompt_features(self.scorer, [prompt for prompt, _ in rows])

        rows = [(prompt, ()) for prompt in prompts]
        return self._in_batches("reading prompts", rows, features, shares_prompts=False)

    def _in_batches(
        self,
        doing: str,
        rows: Sequence[Row],
        compute: Callable[[Sequence[Row]], Tensor],
        *,
        shares_prompts: bool,
    ) -> Scores:
        found: Scores = [()] * len(rows)
        with explain_out_of_memory(self.agent, doing, "tokens_per_micro_batch"), torch.inference_mode():
            for batch in micro_batches(rows, self.tokens, shares_prompts):
                numbers = compute([rows[row] for row in batch]).tolist()
                for row, values in zip(batch, numbers, strict=True):
                    found[row] = tuple(values)
        return found
