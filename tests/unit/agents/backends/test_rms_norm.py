"""The norm in half precision: the same bits as torch's, its gradients, and what it keeps."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hacrl.agents.backends.rms_norm import rms_norm

EPS = 1e-6


def plain(hidden: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(hidden.to(weight.dtype), weight.shape, weight, EPS).to(hidden.dtype)


def states(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (3 * torch.randn(37, 200)).to(dtype), 1 + torch.randn(200), torch.randn(37, 200).to(dtype)


@pytest.mark.parametrize("in_full", [True, False], ids=["fp32 weight", "weight as states"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_same_bits_as_torch_with_and_without_a_gradient(dtype: torch.dtype, in_full: bool) -> None:
    hidden, weight, _ = states(dtype)
    weight = weight if in_full else weight.to(dtype)
    with_gradient = rms_norm(hidden.requires_grad_(), weight, EPS)
    assert with_gradient.requires_grad
    assert with_gradient.dtype == dtype
    with torch.no_grad():
        assert torch.equal(with_gradient, plain(hidden, weight))
        assert torch.equal(with_gradient, rms_norm(hidden, weight, EPS))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.004)], ids=str)
def test_gradients_are_those_of_the_norm_but_for_one_rounding(
    dtype: torch.dtype, tolerance: float, frozen: bool
) -> None:
    hidden, weight, upstream = states(dtype)
    truth = hidden.double().requires_grad_(), weight.double().requires_grad_()
    torch.autograd.backward(plain(*truth), upstream.double())
    found = hidden.requires_grad_(), weight.clone().requires_grad_(not frozen)
    torch.autograd.backward(rms_norm(*found, EPS), upstream)
    for ours, theirs in list(zip(found, truth, strict=True))[: 1 if frozen else 2]:
        assert ours.grad is not None
        assert theirs.grad is not None
        assert ours.grad.dtype == ours.dtype
        assert (ours.grad - theirs.grad).norm() < tolerance * theirs.grad.norm()
    assert (found[1].grad is None) == frozen


def test_in_half_precision_only_the_input_is_kept() -> None:
    """Beside it the weight, and one number per row."""
    hidden, weight, _ = states(torch.bfloat16)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        rms_norm(hidden.requires_grad_(), weight.requires_grad_(), EPS)
    assert sum(tensor.nbytes for tensor in kept) == hidden.nbytes + weight.nbytes + 37 * 4
