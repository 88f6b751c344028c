"""RMS norm that keeps only its input, in half precision, for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[n, d] times weight [d], computed at least in the weight's precision; the result is in the input's.

    Of states in half precision on a CPU, autograd would keep two copies in fp32, and take twice as long.
    The result is the same bits with and without a gradient.
    """
    if torch.is_grad_enabled() and hidden.device.type == "cpu" and hidden.dtype.itemsize < 4:
        normed: Tensor = _Norm.apply(hidden, weight, eps)  # type: ignore[no-untyped-call]
        return normed
    return F.rms_norm(hidden.to(weight.dtype), weight.shape, weight, eps).to(hidden.dtype)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
        exact = hidden.float()
        scale = exact.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(hidden, weight, scale)
        return exact.mul_(scale).mul_(weight).to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        hidden, weight, scale = ctx.saved_tensors
        normed, exact = hidden.float().mul_(scale), gradient.float()
        to_weight = (exact * normed).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        slope = exact * weight
        along = (slope * normed).mean(-1, keepdim=True)
        return slope.sub_(normed.mul_(along)).mul_(scale).to(hidden.dtype), to_weight, None
