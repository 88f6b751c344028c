"""Weights in the order in which the processor multiplies with them.

In bf16 on a CPU, every product first brings its weights into another order. For a few rows that takes as long
as the product itself, so decoding does it once for all tokens. The results are the same bits.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_ROWS = 64
"""Responses decoded side by side; for more of them the order hardly matters."""


def pays(dtype: torch.dtype, device: torch.device, rows: int) -> bool:
    """Whether packing is possible here, and faster for so many rows."""
    if dtype != torch.bfloat16 or device.type != "cpu" or rows > FEW_ROWS:
        return False
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(available and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def packed(weight: Tensor) -> Tensor:
    """A copy that only `linear` can use."""
    copy: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), FEW_ROWS)
    return copy


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`; the weight may be packed."""
    if not weight.is_mkldnn:
        return F.linear(states, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return product
