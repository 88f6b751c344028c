"""Architectures of transformers: none computes all logits, and log-probs are those of its own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from hacrl.agents.backends.body import body_of
from hacrl.agents.backends.choice import choose_backends, decoded_logps
from hacrl.agents.backends.padded import PaddedScorer
from hacrl.agents.critic import ValueModel
from helpers_agents import VOCABULARY, random_rows, tiny_model

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
HEADS = {"head_dim": 8}
WINDOW = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTED = {**EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 8,
    "mamba_chunk_size": 16,
}
PER_LAYER = {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8}

SHARED = ("CachedDecoder", "SharedPrefixScorer")
PADDED = ("CachedDecoder", "PaddedScorer")
SLOW = ("RecomputingDecoder", "PaddedScorer")
"""Its state after a prompt cannot be read by a pass over several tokens."""

ARCHITECTURES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "apertus": ({}, SHARED),
    "cohere2": ({}, SHARED),
    "deepseek_v3": ({**LATENT, **ROUTED}, SHARED),
    "ernie4_5": (HEADS, SHARED),
    "exaone4": ({**HEADS, **WINDOW}, SHARED),
    "falcon_h1": ({**HEADS, **MAMBA, "mamba_d_ssm": 64}, PADDED),
    "gemma3n_text": (
        {
            **HEADS,
            **WINDOW,
            **PER_LAYER,
            "num_kv_shared_layers": 0,
            "laurel_rank": 4,
            "intermediate_size": [48, 48],
            "activation_sparsity_pattern": [0.0, 0.0],
        },
        SHARED,
    ),
    "gemma4_text": (
        {**HEADS, **WINDOW, **PER_LAYER, "global_head_dim": 16, "num_kv_shared_layers": 0},
        SHARED,
    ),
    "glm4_moe": ({**HEADS, **ROUTED}, SHARED),
    "gpt_oss": ({**HEADS, **WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}, SHARED),
    "granite": ({}, SHARED),
    "granitemoehybrid": (
        {
            **MAMBA,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "shared_intermediate_size": 16,
        },
        SHARED,
    ),
    "mamba2": ({"num_heads": 4, "head_dim": 16, "n_groups": 1, "state_size": 8, "chunk_size": 16}, SLOW),
    "ministral3": (HEADS, SHARED),
    "mixtral": ({"num_local_experts": 4}, SHARED),
    "nemotron": ({}, SHARED),
    "olmo3": (WINDOW, SHARED),
    "phi3": ({}, SHARED),
    "qwen3_5_text": ({**HEADS, **DELTA}, SHARED),
    "qwen3_moe": ({**HEADS, **EXPERTS, "num_experts": 4}, SHARED),
    "starcoder2": ({}, SHARED),
}


def tiny(architecture: str) -> PreTrainedModel:
    """Random weights, large enough that mistakes show."""
    config = AutoConfig.for_model(architecture, **{**SMALL, **ARCHITECTURES[architecture][0]})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.15)
    return model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_computes_needed_logits_alone(architecture: str) -> None:
    model, rows = tiny(architecture), random_rows(3, 3)
    backends = choose_backends(model)
    assert tuple(backends.names.values()) == ARCHITECTURES[architecture][1], backends.refused
    with torch.no_grad():
        found = backends.scorer.logps(rows)
        decoded = decoded_logps(backends.decoder, rows, model.device)
        for row, (prompt, response) in enumerate(rows):
            logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
            alone = logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None]).squeeze(1)
            for logps in (found, decoded):
                torch.testing.assert_close(logps[row, : len(alone)], alone, rtol=2e-5, atol=5e-5)


def test_a_body_is_found_where_its_name_is_another_classs() -> None:
    """Llama 4's text model has the prefix of the one with vision, and `base_model` is the whole model."""
    model, rows = tiny_model("llama4"), random_rows(2, 2)
    assert model.base_model is model
    body, head = body_of(model), model.get_output_embeddings()
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(head(body(ids).last_hidden_state), model(ids).logits)
    assert type(choose_backends(model, gradient_checkpointing=True).scorer) is PaddedScorer
    values = ValueModel(model)(ids, torch.ones_like(ids))
    assert values.tolist() == [[0.0, 0.0, 0.0]], "the critic's head starts at 0"
    assert PaddedScorer(model).states([rows[0][0]])[0].shape[-1] == 32
