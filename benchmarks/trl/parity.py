"""Both sides must compute the same thing: log-probs, loss, gradient, and weights after one replayed step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.our_step import OurSide, training_row
from benchmarks.trl.trl_step import TrlUpdate, run_trl
from benchmarks.workload import Workload
from hacrl.agents.backends.interfaces import Row
from hacrl.algorithm import Objective
from hacrl.types import MiniBatch, Rollout

LIMITS = {
    "log-prob of a token": 2e-5,
    "loss": 5e-6,
    "gradient norm, relative": 1e-4,
    "change of the weights, relative": 1e-2,
}
"""Differences that rounding in fp32 explains. Adam divides by the gradient's own size, so rounding of tiny
gradients shows in the weights; a wrong loss or a missed weight gives differences of the order of 1."""

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Check:
    """One quantity on which both sides must agree."""

    engine: str
    quantity: str
    difference: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the difference (never NaN) is within the limit."""
        return self.difference <= self.limit


@dataclass(frozen=True)
class Outcome:
    """What one side made of one replayed step."""

    logps: list[float]
    """Of every response's tokens, one response after the other."""
    losses: list[float]
    gradient_norms: list[float]
    before: Weights
    after: Weights


def check_parity(work: Workload, engine: str, objective: Objective | None = None) -> list[Check]:
    """Draw responses with our engine, let both sides train on them, compare."""
    ours = OurSide(work, engine)
    rollouts = ours.sample(work.seed)
    trl_model = work.make_model()
    before = _weights(trl_model)
    updates = run_trl(work, trl_model, 1, replayed=rollouts, record=True).updates
    drawn = {(ours.prompt_ids[rollout.prompt_id], rollout.token_ids): rollout for rollout in rollouts}
    batches = [_same_mini_batch(update, drawn) for update in updates]
    reports = ours.update(batches, objective)
    theirs = Outcome(
        logps=[
            value for update in updates for value in update.old_logps[update.completion_mask.bool()].tolist()
        ],
        losses=[update.loss for update in updates],
        gradient_norms=[update.gradient_norm for update in updates],
        before=before,
        after=_weights(trl_model),
    )
    own = Outcome(
        logps=[value for batch in batches for row in batch for value in row.source_logps],
        losses=[report.loss for report in reports],
        gradient_norms=[report.grad_norm for report in reports],
        before=before,
        after=_weights(ours.model),
    )
    return compare(engine, own, theirs)


def compare(engine: str, ours: Outcome, theirs: Outcome) -> list[Check]:
    """One check per quantity, in the order of `LIMITS`."""
    norms, trl_norms = torch.tensor(ours.gradient_norms), torch.tensor(theirs.gradient_norms)
    after, trl_after = _flat(ours.after), _flat(theirs.after)
    differences = (
        (torch.tensor(ours.logps) - torch.tensor(theirs.logps)).abs().max(),
        (torch.tensor(ours.losses) - torch.tensor(theirs.losses)).abs().max(),
        (norms / trl_norms - 1).abs().max(),
        (after - trl_after).norm() / (trl_after - _flat(theirs.before)).norm(),
    )
    return [
        Check(engine, quantity, float(difference), limit)
        for (quantity, limit), difference in zip(LIMITS.items(), differences, strict=True)
    ]


def _flat(weights: Weights) -> Tensor:
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def _weights(model: torch.nn.Module) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def _same_mini_batch(update: TrlUpdate, drawn: Mapping[Row, Rollout]) -> MiniBatch:
    """The rows of a TRL mini-batch, which TRL has shuffled, with the log-probs we kept while drawing them."""
    prompts = _unpadded(update.prompt_ids, update.prompt_mask)
    responses = _unpadded(update.completion_ids, update.completion_mask)
    return tuple(
        training_row(drawn[prompt, response], prompt, advantage)
        for prompt, response, advantage in zip(prompts, responses, update.advantages.tolist(), strict=True)
    )


def _unpadded(ids: Tensor, mask: Tensor) -> list[tuple[int, ...]]:
    return [tuple(row[keep].tolist()) for row, keep in zip(ids, mask.bool(), strict=True)]
