"""Predicted chances against true ones, by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from hacrl.algorithm import Belief
from hacrl.analysis.audit.beliefs import audit_beliefs, calibration_error
from hacrl.analysis.audit.draws import Draws
from hacrl.training.beliefs import StepBelief
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team


def test_calibration_is_measured_by_quarters_of_the_prompts():
    predicted = torch.linspace(0.05, 0.95, 8).double()
    assert calibration_error(predicted, predicted) == 0
    assert calibration_error(predicted, predicted + 0.1) == pytest.approx(0.1)
    # Errors of both signs at about the same prediction cancel, those in different quarters do not.
    signs = torch.tensor([1.0, -1.0]).double()
    assert calibration_error(predicted, predicted + 0.05 * signs.repeat(4)) == pytest.approx(0.0, abs=1e-12)
    apart = predicted + 0.05 * signs.repeat_interleave(4)
    assert calibration_error(predicted, apart) == pytest.approx(0.05)


def test_errors_are_those_of_the_chances_without_the_noise_of_the_ground_truth():
    belief = Belief(
        torch.tensor([[0.25, 0.75], [0.5, 0.5]]).double(), torch.tensor([[0.01, 0.03], [0.04, 0.04]]).double()
    )
    shares = torch.full((2, 2), math.nan)
    step = StepRecord(3, predictions={"a": StepBelief(("p", "q"), belief, belief, shares, torch.ones(2, 1))})
    group = SimpleNamespace(
        rewards=torch.tensor([[[0.0, 1.0], [1.0, 1.0]], [[0.0, 9.0], [1.0, 0.0]]]).double(),
        mask=torch.tensor([[[True, True], [True, True]], [[True, False], [True, True]]]),
    )
    draws = Draws(
        (),
        torch.tensor([[0.15, 0.85], [0.5, 0.5]]).double(),
        torch.tensor([[0.0, 0.002], [0.0, 0.0]]).double(),
        cast(Any, (group,)),
        (step,),
    )
    team = cast(Team, SimpleNamespace(names=("a", "b"), retired={}))
    own, peer = audit_beliefs(team, draws)
    assert (own.learner, own.agent, peer.agent) == ("a", "a", "b")
    assert own.success == pytest.approx(0.5)
    assert own.error == pytest.approx(math.sqrt(0.01 - 0.001))
    assert own.constant == pytest.approx(math.sqrt(0.35**2 - 0.001))
    assert own.deviation == pytest.approx(math.sqrt(0.02))
    assert own.brier == pytest.approx((0.25**2 + 0.25**2) / 2)
    assert (peer.error, peer.constant) == (0.0, 0.0)
    assert peer.brier == pytest.approx((0.5**2 + 0.0) / 2)  # the masked reward does not count
    assert audit_beliefs(cast(Team, SimpleNamespace(names=("a", "b"), retired={"b": "lost"})), draws) == [own]
