"""Contextual capability against the truth: predicted chances of success at prompts, before any outcome."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hacrl.analysis.audit.draws import Draws
from hacrl.training.team import Team

BINS = 4
"""Few, so that each has enough prompts: their chances differ a lot."""


@dataclass(frozen=True, slots=True)
class BeliefAudit:
    """How well a learner predicts one agent's chance of success from the prompt.

    The ground truth is an estimate itself: what its variance adds to squared errors is subtracted.
    """

    learner: str
    agent: str
    success: float
    """The agent's mean chance over all prompts."""
    error: float
    """RMS over prompts of predicted minus true chance."""
    constant: float
    """The same of the agent's mean chance, which is what one number per agent can be at best."""
    deviation: float
    """RMS of the predictions' standard deviations: of the mean chance at prompts with the same features."""
    calibration: float
    """Mean of |mean predicted - mean true| over quarters of the prompts, sorted by prediction."""
    brier: float
    """Mean squared error of the predicted chance as a forecast of the share of right responses in a group."""


def audit_beliefs(team: Team, draws: Draws) -> list[BeliefAudit]:
    """Every learner about every agent; nothing if the method does not ask for it."""
    found = []
    for learner, prediction in draws.steps[0].predictions.items():
        for j, agent in enumerate(team.names):
            if agent not in team.retired:
                mean, deviation = prediction.before.mean[j], prediction.before.variance[j].mean().sqrt()
                truth, variance = draws.truth[j], draws.truth_variance[j]
                groups = [_shares(table.rewards[j], table.mask[j]) for table in draws.groups]
                brier = sum(float((mean - share).square().nanmean()) for share in groups) / len(groups)
                found.append(
                    BeliefAudit(
                        learner=learner,
                        agent=agent,
                        success=float(truth.mean()),
                        error=_rms(mean - truth, variance),
                        constant=_rms(truth.mean() - truth, variance),
                        deviation=float(deviation),
                        calibration=calibration_error(mean, truth),
                        brier=brier,
                    )
                )
    return found


def calibration_error(predicted: Tensor, measured: Tensor) -> float:
    """Mean of |mean predicted - mean measured| over at most `BINS` groups of equal size, by prediction."""
    order = predicted.argsort(stable=True)
    parts = [part for part in order.tensor_split(BINS) if len(part)]
    apart = [abs(float(predicted[part].mean() - measured[part].mean())) * len(part) for part in parts]
    return sum(apart) / len(order)


def _rms(errors: Tensor, variance: Tensor) -> float:
    return float((errors.square().mean() - variance.mean()).clamp(min=0).sqrt())


def _shares(rewards: Tensor, mask: Tensor) -> Tensor:
    """[b]: mean reward; NaN without one."""
    return rewards.masked_fill(~mask, float("nan")).nanmean(1)
