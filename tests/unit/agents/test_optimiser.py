"""Schedules against transformers', AdamW against torch's, half precision against fp32."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import get_scheduler

from hacrl.agents import optimiser as optimiser_module
from hacrl.agents.errors import AgentError
from hacrl.agents.optimiser import Optimiser, add_in_parts, learning_rate_factor
from hacrl.recipe.settings import OptimiserSettings
from helpers_agents import Largest


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_schedules_are_those_of_transformers(schedule: Any, warmup: int) -> None:
    settings = OptimiserSettings(schedule=schedule, warmup_steps=warmup)
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    theirs = get_scheduler(name, sgd, num_warmup_steps=warmup, num_training_steps=10)
    for step in range(13 if schedule != "cosine" else 11):
        assert learning_rate_factor(settings, step, 10) == pytest.approx(sgd.param_groups[0]["lr"], abs=1e-12)
        sgd.step()
        theirs.step()


def test_a_finished_cosine_stays_at_zero() -> None:
    assert learning_rate_factor(OptimiserSettings(schedule="cosine"), 8, 5) == 0.0


@pytest.mark.parametrize(("warmup", "total"), [(0, None), (9, 9)])
def test_a_schedule_that_decays_has_to_know_its_end(warmup: int, total: int | None) -> None:
    settings = OptimiserSettings(schedule="linear", warmup_steps=warmup)
    with pytest.raises(AgentError, match=rf"total_steps is {total}: a linear .* warmup_steps \({warmup}\)"):
        Optimiser({"w": nn.Parameter(torch.zeros(1))}, settings, total)


def test_a_warm_up_has_to_know_where_the_run_is() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimiser = Optimiser({"w": weight}, OptimiserSettings(learning_rate=1.0, warmup_steps=4))
    assert [optimiser.learning_rate(steps) for steps in (0.5, 3, 4, 99.5)] == [0.125, 0.75, 1.0, 1.0]
    with pytest.raises(AgentError, match="pass steps_done"):
        optimiser.step(optimiser.gradient_norm())


@pytest.mark.parametrize("empty", [None, [0.0, 0.0]])
def test_an_update_without_gradient_changes_nothing(empty: list[float] | None) -> None:
    """Neither momentum nor weight decay moves the weights, and the next update is as if it had not been."""
    gradients = [[3.0, 4.0], empty, empty, [0.1, -0.2]]
    skipping, without = (nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    settings = OptimiserSettings(learning_rate=0.1, weight_decay=0.2)
    first, second = Optimiser({"w": skipping}, settings), Optimiser({"w": without}, settings)
    made = []
    for gradient in gradients:
        skipping.grad = None if gradient is None else torch.tensor(gradient)
        before = {key: value.clone() for key, value in first.tensors().items()}
        made.append(first.step(first.gradient_norm()))
        unchanged = all(torch.equal(value, before.get(key, value)) for key, value in first.tensors().items())
        assert unchanged is not made[-1]
    assert made == [True, False, False, True]
    for gradient in (gradients[0], gradients[-1]):
        without.grad = torch.tensor(gradient)
        second.step(second.gradient_norm())
    assert all(torch.equal(value, second.tensors()[key]) for key, value in first.tensors().items())


@pytest.mark.parametrize("empty", [None, [0.0, 0.0]])
def test_the_papers_empty_updates_follow_the_momentum(empty: list[float] | None) -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    optimiser = Optimiser({"w": ours}, OptimiserSettings(learning_rate=0.1, skip_empty_updates=False))
    adamw = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.01)
    for gradient in ([0.3, 0.4], empty, empty):
        ours.grad = None if gradient is None else torch.tensor(gradient)
        theirs.grad = torch.zeros(2) if gradient is None else torch.tensor(gradient)
        before = ours.tolist()
        assert optimiser.step(optimiser.gradient_norm())
        adamw.step()
        assert torch.allclose(ours, theirs, rtol=1e-6)
        assert ours.tolist() != before


def test_steps_are_clipped_adamw() -> None:
    settings = OptimiserSettings(learning_rate=0.1, betas=(0.8, 0.95), weight_decay=0.2, max_grad_norm=0.5)
    ours, theirs = nn.Parameter(torch.tensor([1.0, -2.0])), nn.Parameter(torch.tensor([1.0, -2.0]))
    optimiser = Optimiser({"w": ours}, settings)
    adamw = torch.optim.AdamW([theirs], lr=0.1, betas=(0.8, 0.95), weight_decay=0.2)
    for gradient in ([3.0, 4.0], [0.1, -0.2]):
        ours.grad, theirs.grad = torch.tensor(gradient), torch.tensor(gradient)
        norm = optimiser.gradient_norm()
        assert float(norm) == pytest.approx(torch.tensor(gradient).norm().item())
        optimiser.step(norm)
        nn.utils.clip_grad_norm_([theirs], 0.5)
        adamw.step()
        assert torch.allclose(ours, theirs, rtol=1e-6)
        assert ours.grad is None


def test_half_precision_weights_do_not_lose_small_steps() -> None:
    """2,000 steps of 1e-6 move a bf16 weight of 1, though each is far below its resolution of 0.008."""
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimiser = Optimiser({"w": weight}, OptimiserSettings(learning_rate=1e-5, weight_decay=0.0))
    for _ in range(2000):
        weight.grad = torch.ones(3, dtype=torch.bfloat16)
        optimiser.step(optimiser.gradient_norm())
    assert weight.dtype == torch.bfloat16
    assert weight.tolist() == pytest.approx([0.98] * 3, abs=0.004)


def test_gradients_in_half_precision_are_added_up_in_fp32() -> None:
    """256 micro-batches of 2^-9 after one of 1: in bf16 each would be rounded away."""
    weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    optimiser = Optimiser({"w": weight}, OptimiserSettings(learning_rate=1e-6))
    for part in [1.0, *[2**-9] * 256]:
        torch.autograd.backward((weight * part).sum())
        assert weight.grad is None  # it has its place in fp32 before the next weight's gradient is there
    assert optimiser.gradients()["w"].tolist() == [1.5]
    assert optimiser.gradient_norm() == 1.5
    optimiser.step(optimiser.gradient_norm())
    assert (weight.grad, optimiser.gradients()) == (None, {})


def test_a_large_gradient_in_half_precision_is_added_without_a_whole_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimiser_module, "ADDED_AT_ONCE", 12)
    total, summand = torch.randn(7, 5), torch.randn(7, 5).bfloat16()
    truth = total + summand.float()
    with Largest() as largest:
        add_in_parts(total, summand)
    assert torch.equal(total, truth)
    assert largest.elements <= 12


def test_a_model_outlives_its_optimiser() -> None:
    """torch keeps hooks, and what they refer to, for ever."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimiser = Optimiser({"w": weight}, OptimiserSettings(learning_rate=1e-6))
    gone, kept = weakref.ref(optimiser), weakref.ref(weight)
    del optimiser
    gc.collect()
    assert gone() is None
    torch.autograd.backward(weight.sum())
    assert weight.grad is not None
    del weight
    gc.collect()
    assert kept() is None


def farthest(gradients: Sequence[float], betas: tuple[float, float]) -> float:
    """The longest way of a weight in one of the updates, empty ones included, in learning rates."""
    weight = nn.Parameter(torch.zeros(1))
    optimiser = Optimiser(
        {"w": weight},
        OptimiserSettings(learning_rate=1.0, betas=betas, weight_decay=0.0, skip_empty_updates=False),
    )
    ways = []
    for gradient in gradients:
        before = weight.item()
        weight.grad = torch.tensor([gradient])
        optimiser.step(optimiser.gradient_norm())
        ways.append(abs(weight.item() - before))
    return max(ways)


def bound(betas: tuple[float, float]) -> float:
    """What docs/methods.md says of it."""
    beta1, beta2 = betas
    return (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))


@settings(max_examples=50)
@given(
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=1, max_size=40),
    growth=st.floats(0.5, 1.5),
    betas=st.sampled_from([(0.9, 0.98), (0.9, 0.999), (0.5, 0.9)]),
)
def test_no_gradients_move_a_weight_further_than_the_bound(
    signs: list[float], growth: float, betas: tuple[float, float]
) -> None:
    largest = max(1.0, growth ** len(signs))
    gradients = [sign * growth**i / largest for i, sign in enumerate(signs)]
    assert farthest(gradients, betas) <= bound(betas) * (1 + 1e-4)


def test_the_bound_is_the_least_one() -> None:
    """Reached by gradients that grow as fast as the second moment forgets slower than the first."""
    for betas in ((0.9, 0.98), (0.9, 0.95)):
        worst = [0.0] * 300 + [(betas[0] / betas[1]) ** i for i in reversed(range(150))]
        assert farthest(worst, betas) > 0.99 * bound(betas)
    assert bound((0.9, 0.98)) == pytest.approx(1.70, abs=0.005)
    assert bound((0.9, 0.999)) == pytest.approx(7.27, abs=0.005)
