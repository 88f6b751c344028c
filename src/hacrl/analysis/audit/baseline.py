"""Baselines as estimates of a learner's expected reward at a prompt: their bias and error."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hacrl.algorithm import advantages, own_advantages
from hacrl.algorithm.diagnostics import EstimatorError, estimator_error
from hacrl.analysis.audit.draws import Draws
from hacrl.methods import View
from hacrl.sharing import RewardTable
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team

ALL = "all"


@dataclass(frozen=True, slots=True)
class BaselineAudit:
    """Errors of a learner's baselines on some prompts."""

    learner: str
    kind: str
    """Of the prompts; `all` for all of them."""
    prompts: int
    expected_reward: float
    """Of the learner's own responses, from the large sample: what a baseline estimates."""
    used: EstimatorError
    """The baseline that the method uses."""
    own: EstimatorError
    """The mean of the learner's own group."""
    plain: EstimatorError
    """The unscaled mean over all agents' rewards."""


def audit_baselines(team: Team, draws: Draws) -> list[BaselineAudit]:
    """Every learner whose baseline includes peers' rewards, on all prompts and by kind of prompt."""
    kinds = sorted({prompt.kind for prompt in draws.prompts})
    found = []
    for member in team.learners:
        estimates = _estimates(team, member.name, draws)
        if estimates is None:
            continue
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
    used, own, plain = (estimator_error(values[:, chosen], truth, variance) for values in estimates)
    return BaselineAudit(learner, kind, int(chosen.sum()), float(truth.mean()), used, own, plain)


def _estimates(team: Team, learner: str, draws: Draws) -> Tensor | None:
    """[estimator, r, b] of one learner: used, own, plain; None if the method uses the own mean."""
    repeated = [
        _baselines(team, learner, table, step) for table, step in zip(draws.groups, draws.steps, strict=True)
    ]
    found = [estimates for estimates in repeated if estimates is not None]
    return torch.stack(found, 1) if found else None


def _baselines(team: Team, learner: str, table: RewardTable, step: StepRecord) -> Tensor | None:
    """[estimator, b] from the responses that the learner receives; None if the method uses the own mean."""
    received = torch.tensor([name == learner or name in team.topology[learner] for name in team.names])
    known = replace(table, mask=table.mask & received[:, None, None])
    view = View(learner, known, step.omega, team.recipe.reward.maximum, team.recipe.updates.mini_batches)
    if learner in step.predictions:
        by_prompt = step.predictions[learner].after.omega(team.recipe.capability.clamp)
        view = replace(view, prompt_omega=by_prompt)
    used = team.method.baseline(view) if team.topology[learner] else None
    if used is None:
        return None
    alike = torch.ones_like(step.omega)
    _, own = own_advantages(known.rewards, mask=known.mask)
    _, plain = advantages(known.rewards, alike, reward_max=view.reward_max, mask=known.mask)
    return torch.stack([used, own[view.k], plain[view.k]])
