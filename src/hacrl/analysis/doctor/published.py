"""Published configurations (config.json) of the models in recipes/paper, for use without the hub."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig

_QWEN3 = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
_QWEN3_1_7B = _QWEN3 | {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
}
_QWEN3_4B = _QWEN3 | {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
}
_QWEN3_8B = _QWEN3_4B | {"hidden_size": 4096, "intermediate_size": 12288, "tie_word_embeddings": False}
_LLAMA_1B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
_LLAMA_3B = _LLAMA_1B | {
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "head_dim": 128,
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-1.7B-Base": _QWEN3_1_7B,
    "Qwen/Qwen3-4B": _QWEN3_4B | {"max_position_embeddings": 40960},
    "Qwen/Qwen3-4B-Base": _QWEN3_4B,
    "Qwen/Qwen3-4B-Instruct-2507": _QWEN3_4B | {"max_position_embeddings": 262144},
    "Qwen/Qwen3-8B": _QWEN3_8B | {"max_position_embeddings": 40960},
    "Qwen/Qwen3-8B-Base": _QWEN3_8B,
    "meta-llama/Llama-3.2-1B-Instruct": _LLAMA_1B,
    "meta-llama/Llama-3.2-3B-Instruct": _LLAMA_3B,
}


def published_config(model: str) -> Any:
    """A configuration with the published sizes, or None for a model that is not in the table."""
    values = PUBLISHED.get(model)
    return AutoConfig.for_model(**values) if values else None
