"""One optimiser update per mini-batch, computed in micro-batches that fit a token budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.agents.engine import Row, Scorer, response_mask
from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.optimiser import Optimiser
from hacrl.algorithm.batch import Objective, SourceData
from hacrl.algorithm.objective import kl_low_variance
from hacrl.types import MiniBatch, TrainingRow

ReferenceLogps = Callable[[Sequence[Row]], Tensor]
"""Log-probs [s, t] under the frozen initial policy."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What one optimiser update saw and did."""

    loss: float
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    mean_logps: tuple[float, ...]
    """The learner's mean log-prob of each row before the update, in the order of the rows."""
    tokens: int
    """Response tokens trained on."""
    kl: float
    """Mean low-variance KL to the initial policy over own rows; 0 when it is not computed."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """One micro-batch's share of the loss and of the KL, and its mean log-probs."""

    loss: Tensor
    kl: Tensor
    mean_logps: Tensor


class Learner:
    """Turns mini-batches into updates of one agent's weights."""

    def __init__(
        self,
        agent: str,
        scorer: Scorer,
        optimiser: Optimiser,
        tokens_per_micro_batch: int,
        device: torch.device,
    ) -> None:
        self._agent = agent
        self._scorer = scorer
        self._optimiser = optimiser
        self._budget = tokens_per_micro_batch
        self._device = device
        self._kl = 0.0
        self._reference: ReferenceLogps | None = None

    def add_kl(self, weight: float, reference: ReferenceLogps) -> None:
        """Add the weighted KL to a frozen reference to the loss of own rows."""
        self._kl, self._reference = weight, reference

    def update(self, mini_batch: MiniBatch, objective: Objective, update: int, number: int) -> UpdateReport:
        """One optimiser step on the mean over the rows.

        `update` counts the updates already made in this step; `number` is the mini-batch's place, for errors.
        """
        rows = [(row.prompt_ids, row.response_ids) for row in mini_batch]
        batches = micro_batches(rows, self._budget, self._scorer.shares_prompts)
        sums = [
            self._accumulate([mini_batch[i] for i in batch], objective, update, len(rows))
            for batch in batches
        ]
        loss = float(torch.stack([part.loss for part in sums]).sum())
        norm = self._optimiser.gradient_norm()
        self._refuse_non_finite(loss, float(norm), number, mini_batch)
        learning_rate = self._optimiser.learning_rate
        self._optimiser.step(norm)

        order = torch.tensor([row for batch in batches for row in batch])
        mean_logps = torch.empty(len(rows))
        mean_logps[order] = torch.cat([part.mean_logps for part in sums]).float().cpu()
        own = sum(row.own for row in mini_batch)
        return UpdateReport(
            loss=loss,
            grad_norm=float(norm),
            learning_rate=learning_rate,
            mean_logps=tuple(mean_logps.tolist()),
            tokens=sum(len(response) for _, response in rows),
            kl=float(torch.stack([part.kl for part in sums]).sum()) / max(1, own),
        )

    def _accumulate(
        self, batch: Sequence[TrainingRow], objective: Objective, update: int, mini_batch_rows: int
    ) -> _Sums:
        """Add one micro-batch's gradient; its rows count as part of the whole mini-batch."""
        rows = [(row.prompt_ids, row.response_ids) for row in batch]
        mask = response_mask(rows, self._device)
        data = source_data(batch, self._device)
        logps = self._scorer.logps(rows)
        values = objective(logps, mask, data, update)
        kl = torch.zeros_like(values)
        if self._reference is not None and bool(data.own.any()):
            reference = self._reference(rows)
            kl = kl_low_variance(logps, reference, mask) * data.own
        loss = (values + self._kl * kl).sum() / mini_batch_rows
        if loss.requires_grad:  # an objective may give rows no gradient at all
            torch.autograd.backward(loss)
        mean_logps = logps.detach().sum(1) / mask.sum(1)
        return _Sums(loss.detach(), kl.detach().sum(), mean_logps)

    def _refuse_non_finite(self, loss: float, norm: float, number: int, mini_batch: MiniBatch) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        self._optimiser.discard_gradients()
        prompts = sorted({row.prompt_id for row in mini_batch})
        raise NonFiniteLoss(
            f"agent {self._agent!r}, mini-batch {number}: loss {loss}, gradient norm {norm}. "
            f"The weights are as before this mini-batch. Look at its rows (prompts {', '.join(prompts[:3])}"
            f"{', ...' if prompts[3:] else ''}) for odd advantages or log-probs, or lower learning_rate"
        )


def source_data(batch: Sequence[TrainingRow], device: torch.device) -> SourceData:
    """What the objective gets to know about a micro-batch, as tensors."""
    width = max(len(row.response_ids) for row in batch)
    source_logps = [row.source_logps + (0.0,) * (width - len(row.source_logps)) for row in batch]
    return SourceData(
        source_mean_logp=torch.tensor([row.source_mean_logp for row in batch], device=device),
        source_logps=torch.tensor(source_logps, device=device),
        advantage=torch.tensor([row.advantage for row in batch], device=device),
        own=torch.tensor([row.own for row in batch], device=device),
        omega=torch.tensor([row.omega for row in batch], device=device),
        length_scale=torch.tensor([row.length_scale for row in batch], device=device),
    )


def micro_batches(rows: Sequence[Row], budget: int, shares_prompts: bool) -> list[list[int]]:
    """Indices of the rows in groups of at most `budget` tokens (or one row, if it is larger than that).

    Rows with the same prompt stay together, prompts of similar length follow each other.
    """
    order = sorted(range(len(rows)), key=lambda row: (len(rows[row][0]), rows[row][0]))
    batches: list[list[int]] = []
    tokens = 0
    for row in order:
        prompt, response = rows[row]
        known = shares_prompts and bool(batches) and rows[batches[-1][-1]][0] == prompt
        cost = len(response) + (0 if known else len(prompt))
        if not batches or tokens + cost > budget:
            batches.append([])
            tokens, cost = 0, len(response) + len(prompt)
        batches[-1].append(row)
        tokens += cost
    return batches
