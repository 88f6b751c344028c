"""What a learner believes about every agent's success at a step's prompts, from the outcomes it has seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hacrl.algorithm import Belief
from hacrl.methods import View
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import make_directory, write_atomic
from hacrl.training.team import Member, Team
from hacrl.types import Prompt


@dataclass(frozen=True)
class StepBelief:
    """A learner's belief about a step's prompts before and after their outcomes, and these outcomes."""

    prompt_ids: tuple[str, ...]
    before: Belief
    after: Belief
    shares: Tensor
    """[j, b]: every agent's share of right responses; NaN where it has none."""
    features: Tensor
    """[b, f]"""

    @property
    def brier(self) -> float:
        """Mean squared error of the chances predicted before the outcomes; NaN if there are no outcomes."""
        return float((self.before.mean - self.shares).square().nanmean())

    @property
    def spread(self) -> float:
        """The same of every agent's own mean share: the best that one number per agent can do."""
        return float((self.shares.nanmean(1, keepdim=True) - self.shares).square().nanmean())


def learn_outcomes(team: Team, member: Member, view: View, prompts: Sequence[Prompt]) -> StepBelief:
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
    return StepBelief(view.table.prompt_ids, before, capability.believe(features), shares, features)


def outcomes(view: View) -> Tensor:
    """[j, b]: the share of right responses; NaN where an agent has none that could be scored."""
    scored = view.table.mask.sum(2)
    return torch.where(scored > 0, view.verified.sum(2) / scored, torch.nan).double()


def write_beliefs(
    run: RunDirectory, step: int, agents: Sequence[str], predictions: Mapping[str, StepBelief]
) -> None:
    """Write a step's beliefs; `hacrl.runs.beliefs` reads them."""
    lines = [_line(learner, agents, found) for learner, found in predictions.items()]
    make_directory(run.beliefs)
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    write_atomic(run.belief_file(step), text.encode())


def _line(learner: str, agents: Sequence[str], found: StepBelief) -> dict[str, Any]:
    def columns(values: Tensor) -> dict[str, list[float | None]]:
        return {name: _rounded(column) for name, column in zip(agents, values[: len(agents)], strict=True)}

    x, y = plane(found.features).T
    return {
        "learner": learner,
        "prompt_id": list(found.prompt_ids),
        "x": _rounded(x),
        "y": _rounded(y),
        "predicted": columns(found.before.mean),
        "deviation": columns(found.before.variance.sqrt()),
        "believed": columns(found.after.mean),
        "share": columns(found.shares),
    }


def plane(features: Tensor) -> Tensor:
    """[b, 2]: the prompts seen from where their standardised features differ most."""
    centred = features - features.mean(0)
    scaled = centred / centred.square().mean(0).sqrt().clamp(min=1e-12)
    _, directions = torch.linalg.eigh(scaled.T @ scaled)  # by variance, the largest last
    found = scaled @ directions[:, -2:].flip(1)
    # An axis has no sign of its own: the prompt that is furthest out gets a positive one.
    furthest = found.abs().argmax(0, keepdim=True)
    return torch.mul(found, found.gather(0, furthest).sign())


def _rounded(column: Tensor) -> list[float | None]:
    return [None if value != value else round(value, 4) for value in column.tolist()]
