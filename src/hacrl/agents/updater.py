"""One optimiser update per mini-batch, computed in micro-batches that fit a token budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hacrl.agents.backends.interfaces import Row, Scorer, response_mask
from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.optimiser import Optimiser
from hacrl.agents.ranks import Ranks, whole_copy
from hacrl.agents.reference import ReferenceLogps
from hacrl.algorithm.batch import Objective, SourceData, WindowedObjective
from hacrl.algorithm.losses import kl_low_variance
from hacrl.types import MiniBatch, TrainingRow


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """The numbers of one optimiser update."""

    loss: float
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    mean_logps: tuple[float, ...]
    """The learner's mean log-prob of each row before the update, in the order of the rows; NaN for rows
    without a gradient, which are not computed."""
    tokens: int
    """Response tokens trained on: those of rows with a gradient."""
    kl: float
    """Mean low-variance KL to the initial policy over own rows; 0 when it is not computed."""
    value_loss: float = 0.0
    """Of the critic, before its own update; 0 without a critic."""
    skipped: bool = False
    """Whether there was no gradient at all, so that nothing changed (`optimiser.skip_empty_updates`)."""


class Updater:
    """Updates one agent's weights, one mini-batch at a time."""

    def __init__(
        self,
        agent: str,
        scorer: Scorer,
        optimiser: Optimiser,
        tokens_per_micro_batch: int,
        device: torch.device,
        ranks: Ranks,
        kl: float = 0.0,
        reference: ReferenceLogps | None = None,
        looks_first: bool = False,
    ) -> None:
        """With a `reference`, the loss of own rows has `kl` times the KL divergence to it added.

        With `looks_first`, peers' rows that the objective's window shuts out have no backward pass. The
        result is the same but for rounding, so toy models, whose runs are compared bit by bit, do without.
        """
        self.optimiser = optimiser
        self._agent = agent
        self._scorer = scorer
        self._budget = tokens_per_micro_batch
        self._device = device
        self._ranks = ranks
        self._kl = kl
        self._reference = reference
        self._looks_first = looks_first and not ranks.several

    def update(
        self,
        mini_batch: MiniBatch,
        objective: Objective,
        update: int,
        number: int,
        steps_done: float | None = None,
    ) -> UpdateReport:
        """One optimiser step on the mean over the rows.

        `update` counts the updates already made in this step; `number` is the mini-batch's index, for errors;
        `steps_done` of the run set the learning rate.
        """
        learning_rate = self.optimiser.learning_rate(steps_done)
        trained = [i for i, row in enumerate(mini_batch) if self._has_gradient(row)]
        try:
            batches, parts = self._shut_out(mini_batch, trained, objective, update)
            done = {row for batch in batches for row in batch}
            for batch in self._batches(mini_batch, [row for row in trained if row not in done]):
                parts.append(self._accumulate([mini_batch[i] for i in batch], objective, update, mini_batch))
                batches.append(batch)
            losses, kls, mean_logps = self._ranks.total(_in_order(parts, batches, len(mini_batch)))
            norm = self.optimiser.gradient_norm()
            self._refuse_non_finite(losses, float(norm), number, mini_batch)
        except BaseException:  # a partial gradient must not leak into the next update
            self.optimiser.discard_gradients()
            raise
        made = self.optimiser.step(norm, steps_done)
        return UpdateReport(
            loss=float(losses.mean()),
            grad_norm=float(norm),
            learning_rate=learning_rate,
            mean_logps=_only_of(trained, mean_logps),
            tokens=sum(len(mini_batch[i].response_ids) for i in trained),
            kl=float(kls.sum()) / max(1, sum(row.own for row in mini_batch)),
            skipped=not made,
        )

    def with_old_logps(self, mini_batch: MiniBatch) -> MiniBatch:
        """Own rows with the log-probs that `update` would compute for them with the present weights.

        To the last bit: the micro-batches are the same. In half precision another batch rounds differently,
        by more than a narrow clip.
        """
        trained = [i for i, row in enumerate(mini_batch) if self._has_gradient(row)]
        found = torch.zeros(len(mini_batch), max(len(row.response_ids) for row in mini_batch))
        with torch.no_grad():
            for batch in self._batches(mini_batch, trained):
                rows = [mini_batch[i] for i in batch]
                if any(row.own for row in rows):
                    logps = self._scorer.logps(_tokens(rows))
                    found[batch, : logps.shape[1]] = logps.float().cpu()
                elif self._ranks.several:  # other ranks compute their rows with this one's weights
                    self._scorer.logps(_tokens(rows or mini_batch[:1]))
        logps_of = self._ranks.total(found).tolist()
        computed = {i for i in trained if mini_batch[i].own}
        return tuple(
            _with_logps(row, tuple(logps_of[i][: len(row.response_ids)])) if i in computed else row
            for i, row in enumerate(mini_batch)
        )

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """Flat gradient of the mean loss over the rows, without the KL term; nothing is updated."""
        trained = [i for i, row in enumerate(mini_batch) if _has_advantage(row)]
        reference, self._reference = self._reference, None
        try:
            for batch in self._batches(mini_batch, trained):
                self._accumulate([mini_batch[i] for i in batch], objective, update, mini_batch)
            found = self.optimiser.gradients()
            parts = [
                whole_copy(found[name]) if name in found else torch.zeros(parameter.shape)
                for name, parameter in self.optimiser.parameters.items()
            ]
        finally:
            self._reference = reference
            self.optimiser.discard_gradients()
        return torch.cat([part.float().flatten() for part in parts if part is not None] or [torch.zeros(0)])

    def _batches(self, mini_batch: MiniBatch, trained: Sequence[int]) -> list[list[int]]:
        """This rank's micro-batches of the rows to compute; empty ones where other ranks have more."""
        rows = _tokens([mini_batch[i] for i in trained])
        batches = self._ranks.micro_batches(rows, self._budget, self._scorer.shares_prompts)
        return [[trained[i] for i in batch] for batch in batches]

    def _has_gradient(self, row: TrainingRow) -> bool:
        """Whether a row has to be computed at all: every objective's loss is a multiple of the advantage."""
        return _has_advantage(row) or (self._reference is not None and row.own)

    def _shut_out(
        self, mini_batch: MiniBatch, trained: Sequence[int], objective: Objective, update: int
    ) -> tuple[list[list[int]], list[Tensor]]:
        """Peers' rows outside the objective's window, and what `_accumulate` would return for them.

        A forward pass finds them. The window ends at a ratio of 1, so that even of a peer with the same
        policy about half of the rows are outside.
        """
        windowed = isinstance(objective, WindowedObjective) and objective.window(update) is not None
        if not (self._looks_first and windowed):
            return [], []
        batches, parts = [], []
        for batch in self._batches(mini_batch, [i for i in trained if not mini_batch[i].own]):
            rows = [mini_batch[i] for i in batch]
            with torch.no_grad():
                logps = self._scorer.logps(_tokens(rows))
            logps.requires_grad_()
            mask = response_mask(_tokens(rows), self._device)
            data = source_data(rows, self._device, _mean_length(mini_batch))
            losses = objective(logps, mask, data, update) * _weights(rows, self._device)
            (slopes,) = torch.autograd.grad(losses.sum(), logps)
            outside = (slopes == 0).all(1).nonzero().squeeze(1)
            mean_logps = logps.detach().sum(1) / mask.sum(1)
            columns = torch.stack([losses.detach(), torch.zeros_like(mean_logps), mean_logps])
            parts.append(columns[:, outside])
            batches.append([batch[i] for i in outside.tolist()])
        return batches, parts

    def _accumulate(
        self, batch: Sequence[TrainingRow], objective: Objective, update: int, mini_batch: MiniBatch
    ) -> Tensor:
        """Add one micro-batch's share of the gradient.

        Returns its rows' losses, KLs and mean log-probs: [3, s].
        """
        if not batch:
            return self._idle(mini_batch[0])
        rows = _tokens(batch)
        mask = response_mask(rows, self._device)
        data = source_data(batch, self._device, _mean_length(mini_batch))
        logps = self._scorer.logps(rows)
        losses = objective(logps, mask, data, update) * _weights(batch, self._device)
        kls = torch.zeros_like(losses)
        if self._reference is not None and (self._ranks.several or any(row.own for row in batch)):
            kls = kl_low_variance(logps, self._reference(rows), mask) * data.own
            losses = losses + self._kl * kls
        if losses.requires_grad:  # an objective may leave rows without any gradient
            torch.autograd.backward(losses.sum() / len(mini_batch))
        elif self._ranks.several:
            torch.autograd.backward(logps, torch.zeros_like(logps))
        self.optimiser.collect_gradients()
        mean_logps = logps.detach().sum(1) / mask.sum(1)
        return torch.stack([losses.detach(), kls.detach(), mean_logps])

    def _idle(self, row: TrainingRow) -> Tensor:
        """Run the model along with the ranks that have more rows, with a gradient of 0."""
        rows = [(row.prompt_ids, row.response_ids[:1])]
        logps = self._scorer.logps(rows)
        if self._reference is not None:
            self._reference(rows)
        torch.autograd.backward(logps, torch.zeros_like(logps))
        self.optimiser.collect_gradients()
        return torch.empty(3, 0, device=self._device)

    def _refuse_non_finite(self, losses: Tensor, norm: float, number: int, mini_batch: MiniBatch) -> None:
        if bool(losses.isfinite().all()) and math.isfinite(norm):
            return
        broken = [
            row.prompt_id
            for row, loss in zip(mini_batch, losses.tolist(), strict=True)
            if not math.isfinite(loss)
        ]
        where = (
            f"The loss is not finite for prompt {broken[0]!r}"
            if broken
            else "Every row's loss is finite, the gradient is not"
        )
        raise NonFiniteLoss(
            f"agent {self._agent!r}, mini-batch {number}: loss {float(losses.mean())}, gradient norm {norm}. "
            f"{where}. This mini-batch has not changed the weights. "
            "Check rewards and log-probs, or lower learning_rate"
        )


def _in_order(parts: Sequence[Tensor], batches: Sequence[Sequence[int]], rows: int) -> Tensor:
    """The micro-batches' columns in the order of the mini-batch's rows; 0 for rows not computed."""
    ordered = torch.zeros(3, rows)
    if parts:
        order = [row for batch in batches for row in batch]
        ordered[:, order] = torch.cat([part.float() for part in parts], 1).cpu()  # off the device at once
    return ordered


def _only_of(rows: Sequence[int], values: Tensor) -> tuple[float, ...]:
    """The values of these rows, NaN for all others."""
    only = torch.full_like(values, math.nan)
    only[list(rows)] = values[list(rows)]
    return tuple(only.tolist())


def _has_advantage(row: TrainingRow) -> bool:
    return row.advantage != 0.0 or (row.judgement is not None and any(row.judgement.advantages))


def _with_logps(row: TrainingRow, logps: tuple[float, ...]) -> TrainingRow:
    return replace(row, source_logps=logps, source_mean_logp=sum(logps) / len(logps))


def _tokens(rows: Sequence[TrainingRow]) -> list[Row]:
    return [(row.prompt_ids, row.response_ids) for row in rows]


def _weights(rows: Sequence[TrainingRow], device: torch.device) -> Tensor:
    return torch.tensor([row.weight for row in rows], device=device)


def _mean_length(rows: Sequence[TrainingRow]) -> float:
    return sum(len(row.response_ids) for row in rows) / len(rows)


def source_data(
    batch: Sequence[TrainingRow], device: torch.device, mean_length: float | None = None
) -> SourceData:
    """What the objective is given about a micro-batch, as tensors.

    `mean_length` is the whole mini-batch's; without it, `batch` is the whole mini-batch.
    """
    width = max(len(row.response_ids) for row in batch)
    judgements = [row.judgement for row in batch if row.judgement is not None]
    token_advantages = None
    if len(judgements) == len(batch):
        token_advantages = pad_numbers([judgement.advantages for judgement in judgements], width, device)
    return SourceData(
        # Unknown (NaN) only where no objective takes a ratio: a NaN there would still reach the gradient.
        source_mean_logp=torch.tensor([row.source_mean_logp for row in batch], device=device).nan_to_num(0.0),
        source_logps=pad_numbers([row.source_logps for row in batch], width, device),
        advantage=torch.tensor([row.advantage for row in batch], device=device),
        own=torch.tensor([row.own for row in batch], device=device),
        omega=torch.tensor([row.omega for row in batch], device=device),
        length_scale=torch.tensor([row.length_scale for row in batch], device=device),
        token_advantages=token_advantages,
        mean_length=_mean_length(batch) if mean_length is None else mean_length,
    )


def pad_numbers(rows: Sequence[tuple[float, ...]], width: int, device: torch.device) -> Tensor:
    """Numbers per token as [s, width]; 0 where a row has none."""
    return torch.tensor([row + (0.0,) * (width - len(row)) for row in rows], device=device)
