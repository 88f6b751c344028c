"""Three estimates of a learner's expected reward at a prompt, each against the truth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm import advantages, own_advantages
from hacrl.algorithm.diagnostics import EstimatorError, estimator_error
from hacrl.analysis.audit.draws import Draws
from hacrl.sharing import RewardTable
from hacrl.training.team import Team

ALL = "all"


@dataclass(frozen=True, slots=True)
class BaselineAudit:
    """How good a learner's baselines are on some prompts."""

    learner: str
    kind: str
    """Of the prompts; `all` for all of them."""
    prompts: int
    expected_reward: float
    """The learner's own, from the large sample: what a baseline estimates."""
    capability: EstimatorError
    """HACPO's: everybody's rewards, scaled by omega."""
    own: EstimatorError
    """The mean of the learner's own group: GRPO's and GSPO's."""
    plain: EstimatorError
    """The unscaled mean of everybody's rewards: Naive's."""


def audit_baselines(team: Team, draws: Draws) -> list[BaselineAudit]:
    """Every learner that hears somebody, on all prompts and on every kind of them."""
    kinds = sorted({prompt.kind for prompt in draws.prompts})
    found = []
    for member in team.active:
        if not team.topology[member.name]:
            continue
        estimates = _estimates(team, member.name, draws)
        for kind in (ALL, *(kinds if len(kinds) > 1 else ())):
            chosen = torch.tensor([kind in (ALL, prompt.kind) for prompt in draws.prompts])
            if int(chosen.sum()) > 1:
                found.append(_audit(team, member.name, kind, draws, estimates, chosen))
    return found


def _audit(
    team: Team, learner: str, kind: str, draws: Draws, estimates: Tensor, chosen: Tensor
) -> BaselineAudit:
    k = team.names.index(learner)
    truth, variance = draws.truth[k, chosen], draws.truth_variance[k, chosen]
    capability, own, plain = (estimator_error(values[:, chosen], truth, variance) for values in estimates)
    return BaselineAudit(learner, kind, int(chosen.sum()), float(truth.mean()), capability, own, plain)


def _estimates(team: Team, learner: str, draws: Draws) -> Tensor:
    """[estimator, r, b] of one learner: capability, own, plain."""
    k = team.names.index(learner)
    repeated = [
        _baselines(team, learner, table, step.omega)
        for table, step in zip(draws.groups, draws.steps, strict=True)
    ]
    return torch.stack([torch.stack([values[k] for values in three]) for three in repeated], 1)


def _baselines(team: Team, learner: str, table: RewardTable, omega: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[k, b] each, from what the learner hears."""
    heard = torch.tensor([name == learner or name in team.topology[learner] for name in team.names])
    mask = table.mask & heard[:, None, None]
    reward_max = team.recipe.reward.maximum
    _, capability = advantages(table.rewards, omega, reward_max=reward_max, mask=mask)
    _, own = own_advantages(table.rewards, mask=mask)
    _, plain = advantages(table.rewards, torch.ones_like(omega), reward_max=reward_max, mask=mask)
    return capability, own, plain
