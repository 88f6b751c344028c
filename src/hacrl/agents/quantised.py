"""Frozen weights in 4 bits: NF4 of bitsandbytes, as in QLoRA (Dettmers et al., 2023)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig

from hacrl.agents.errors import AgentError


def four_bits(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `from_pretrained` that quantise linear layers, but the head, while they are loaded."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise AgentError(
            "lora.base_bits needs the bitsandbytes package: pip install 'hacrl[quantised]', or remove it"
        )
    settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": settings, "device_map": {"": device}}


def keep_trainable(network: nn.Module) -> None:
    """Make the layers compute on a CPU as they do on a GPU.

    With AVX512-BF16, bitsandbytes would repack a layer's weights when it first runs without gradients. The
    repacked layer rounds to bf16 whatever the dtype, and has no backward pass.
    """
    layers: Iterable[Any] = network.modules()
    for layer in layers:
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
