"""Attention of one new token per row without copying keys and values.

Query heads that share a key-value head are the rows of one product. Transformers repeats keys and values for
every query head as soon as rows are padded, which at decode shapes costs more than the attention itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "hacrl_gqa"


def use_gqa_attention(model: PreTrainedModel) -> None:
    """Let a model with torch's attention and shared key-value heads decode without copies."""
    config = model.config.get_text_config()
    kv_heads = getattr(config, "num_key_value_heads", None)
    if kv_heads and kv_heads < config.num_attention_heads and config._attn_implementation == "sdpa":
        model.set_attn_implementation(NAME)


def gqa_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """As transformers' sdpa attention; queries [rows, heads, t, w] -> output [rows, t, heads, w]."""
    rows, heads, tokens, width = query.shape
    plain = (
        attention_mask is None
        or attention_mask.dtype != torch.bool
        or others.get("position_bias") is not None
    )
    if tokens > 1 or plain or torch.is_grad_enabled():
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
        return output
    assert attention_mask is not None
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], width)
    scores = grouped @ key.mT * (width**-0.5 if scaling is None else scaling)
    weights = scores.masked_fill(~attention_mask, -torch.inf).softmax(-1)
    return (weights @ value).view(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(NAME, gqa_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
