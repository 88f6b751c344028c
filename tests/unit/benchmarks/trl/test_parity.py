import dataclasses

import pytest
import torch
from torch import Tensor

from benchmarks.our_step import ENGINES
from benchmarks.trl.parity import Outcome, check_parity, compare
from hacrl.algorithm import SourceData, gspo_loss
from helpers_benchmarks import TINY

pytest.importorskip("trl", reason='TRL is not installed: pip install "hacrl[bench]"')

OUTCOME = Outcome(
    logps=[-1.0, -2.0],
    losses=[0.1, 0.2],
    gradient_norms=[2.0, 3.0],
    before={"a": torch.zeros(4), "b": torch.ones(3)},
    after={"a": torch.full((4,), 1e-3), "b": torch.full((3,), 1.001)},
)


def only_successes(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
    """A clip would not do: where both sides round alike, every ratio is 1 and inside the narrowest one."""
    successes = data.advantage.clamp(min=0)
    return gspo_loss(logps, mask, data.source_mean_logp, successes, clip_low=3e-4, clip_high=4e-4)


def summed_over_tokens(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
    """The ratio of whole responses instead of its geometric mean over tokens."""
    ratio = ((logps * mask).sum(1) - data.source_mean_logp * mask.sum(1)).exp()
    return -ratio * data.advantage


def failures(**changes: object) -> list[str]:
    ours = dataclasses.replace(OUTCOME, **changes)  # type: ignore[arg-type]
    return [check.quantity for check in compare("generic", ours, OUTCOME) if not check.passed]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_replayed_step_agrees_with_trl(engine: str) -> None:
    checks = check_parity(TINY, engine)
    assert {check.quantity: check.difference for check in checks if not check.passed} == {}
    assert len(checks) == 4


@pytest.mark.parametrize("objective", [only_successes, summed_over_tokens])
def test_a_wrong_loss_is_found(objective: object) -> None:
    checks = {check.quantity: check for check in check_parity(TINY, "generic", objective)}  # type: ignore[arg-type]
    assert checks["log-prob of a token"].passed
    assert not checks["gradient norm, relative"].passed
    assert not checks["change of the weights, relative"].passed


def test_equal_outcomes_agree() -> None:
    assert failures() == []


def test_every_quantity_is_looked_at() -> None:
    assert failures(logps=[-1.0, -2.0001]) == ["log-prob of a token"]
    assert failures(losses=[0.1, 0.2001]) == ["loss"]
    assert failures(gradient_norms=[2.0, 3.01]) == ["gradient norm, relative"]
    assert failures(after=OUTCOME.before | {"a": OUTCOME.after["a"]}) == ["change of the weights, relative"]


def test_not_a_number_never_agrees() -> None:
    assert failures(losses=[float("nan"), 0.2]) == ["loss"]
    assert failures(logps=[-1.0, float("nan")]) == ["log-prob of a token"]
