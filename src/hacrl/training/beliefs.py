"""What a learner believes about every agent's success at a step's prompts, from the outcomes it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm import Belief
from hacrl.methods import View
from hacrl.training.team import Member, Team
from hacrl.types import Prompt


@dataclass(frozen=True)
class Prediction:
    """A learner's belief about a step's prompts before and after their outcomes, and these outcomes."""

    prompt_ids: tuple[str, ...]
    before: Belief
    after: Belief
    shares: Tensor
    """[j, b]: every agent's share of right responses; NaN where it has none."""
    features: Tensor
    """[b, f]"""


def learn_outcomes(team: Team, member: Member, view: View, prompts: Sequence[Prompt]) -> Prediction:
    """Take in the outcomes that are new to the learner.

    Only responses that the learner received count, with rewards that it confirmed if it verifies them again.
    """
    capability = team.contextual[member.name]
    features = torch.tensor(member.policy.features(prompts), dtype=torch.float64)
    before = capability.believe(features)
    shares = outcomes(view)
    if view.learner not in view.trained_on:  # not again when late responses arrive
        capability.forget()
    capability.observe(features, shares.nan_to_num(0.0), ~shares.isnan() & view.new[:, :, 0])
    return Prediction(view.table.prompt_ids, before, capability.believe(features), shares, features)


def outcomes(view: View) -> Tensor:
    """[j, b]: the share of right responses; NaN where an agent has none that could be scored."""
    scored = view.table.mask.sum(2)
    return torch.where(scored > 0, view.verified.sum(2) / scored, torch.nan).double()
