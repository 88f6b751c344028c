"""All backends agree with the plain Hugging Face forward, in log-probs and in gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM, OPTConfig, PreTrainedModel

from hacrl.agents.backends import packed_weights, prefix_cache
from hacrl.agents.backends.choice import choose_backends, decoded_logps
from hacrl.agents.backends.fused import FusedDecoder, FusedScorer
from hacrl.agents.backends.fused_family import obstacle
from hacrl.agents.backends.interfaces import Row, Scorer, response_mask
from hacrl.agents.backends.padded import PaddedScorer, PlainScorer, RecomputingDecoder
from hacrl.agents.backends.prefix_cache import CachedDecoder, SharedPrefixScorer
from hacrl.agents.backends.projection import Projection
from hacrl.agents.errors import AgentError
from hacrl.agents.loading import with_adapters
from hacrl.recipe.agent_settings import LoraSettings
from helpers_agents import CONFIGS, FUSED, random_rows, tiny_model

CPU = torch.device("cpu")
SHARED = ("qwen3", "llama", "gpt2", "phi", "gemma3", "gemma2", "mistral", "lfm2", "qwen3_next", "llama4")
SCORERS = [(SharedPrefixScorer, architecture) for architecture in SHARED]
SCORERS += [(FusedScorer, architecture) for architecture in FUSED]


def one_by_one(model: PreTrainedModel, rows: list[Row]) -> list[Tensor]:
    """What the padded forward itself is checked against: every row alone, without any padding."""
    result = []
    for prompt, response in rows:
        logits = model(torch.tensor([prompt + response])).logits[0]
        logps = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        result.append(logps.gather(1, torch.tensor(response)[:, None]).squeeze(1))
    return result


def gradients(model: PreTrainedModel, scorer: Scorer, rows: list[Row]) -> dict[str, Tensor]:
    """Gradients of a loss in which every token weighs differently."""
    model.zero_grad()
    logps = scorer.logps(rows)
    weights = torch.linspace(-1, 2, logps.numel()).view_as(logps) * response_mask(rows, CPU)
    torch.autograd.backward((logps * weights).sum())
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("architecture", CONFIGS)
def test_padded_scores_are_those_of_every_row_alone(architecture: str) -> None:
    model, rows = tiny_model(architecture), random_rows(4, 3)
    with torch.no_grad():
        logps = PaddedScorer(model).logps(rows)
        for row, alone in enumerate(one_by_one(model, rows)):
            assert torch.allclose(logps[row, : len(alone)], alone, atol=1e-5)
            assert not logps[row, len(alone) :].any()


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_fastest_correct_backend_is_chosen(architecture: str) -> None:
    fused = {"decode": "FusedDecoder", "train": "FusedScorer"}
    shared = {"decode": "CachedDecoder", "train": "SharedPrefixScorer"}
    expected = fused if architecture in FUSED else shared
    assert choose_backends(tiny_model(architecture)).names == expected


@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_model_that_is_going_to_be_sharded_computes_prompts_once_where_every_layer_runs_once(
    architecture: str,
) -> None:
    fused = {"decode": "FusedDecoder", "train": "ShardedScorer"}
    expected = fused if architecture in FUSED else {"decode": "CachedDecoder", "train": "PaddedScorer"}
    assert choose_backends(tiny_model(architecture), sharded=True).names == expected


@pytest.mark.parametrize("architecture", CONFIGS)
@settings(max_examples=5)
@given(
    seed=st.integers(0, 1000),
    prompts=st.integers(1, 4),
    samples=st.integers(1, 4),
    longest=st.integers(1, 14),
)
def test_log_probs_while_decoding_are_those_of_a_full_forward(
    architecture: str, seed: int, prompts: int, samples: int, longest: int
) -> None:
    """Longer than gemma3's window of 6; rows drop out of the batch as their responses end."""
    model = tiny_model(architecture)
    rows = random_rows(prompts, samples, longest, seed)
    with torch.no_grad():
        truth = PaddedScorer(model).logps(rows)
    decoders = [CachedDecoder, FusedDecoder] if architecture in FUSED else [CachedDecoder]
    for decoder in decoders:
        assert torch.allclose(decoded_logps(decoder(model), rows, CPU), truth, rtol=0, atol=2e-5)


def test_recomputing_needs_no_cache() -> None:
    model, rows = tiny_model("gpt2"), random_rows(3, 3)
    with torch.no_grad():
        truth = PaddedScorer(model).logps(rows)
    assert torch.allclose(decoded_logps(RecomputingDecoder(model), rows, CPU), truth, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("scorer", "architecture"), SCORERS)
@settings(max_examples=4)
@given(
    seed=st.integers(0, 1000),
    prompts=st.integers(1, 4),
    samples=st.integers(1, 5),
    longest=st.integers(1, 14),
)
def test_gradients_are_those_of_the_padded_computation(
    scorer: type[FusedScorer], architecture: str, seed: int, prompts: int, samples: int, longest: int
) -> None:
    model = tiny_model(architecture)
    rows = random_rows(prompts, samples, longest, seed)
    truth = gradients(model, PaddedScorer(model), rows)
    found = gradients(model, scorer(model), rows)
    assert found.keys() == truth.keys()
    largest = max(float(gradient.norm()) for gradient in truth.values())
    for name, gradient in truth.items():
        assert float((found[name] - gradient).norm()) <= 1e-5 * max(float(gradient.norm()), 0.1 * largest), (
            name
        )


def test_a_large_head_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = tiny_model("qwen3"), random_rows(3, 4)
    whole = gradients(model, FusedScorer(model), rows)
    monkeypatch.setattr("hacrl.agents.backends.head.LOGITS_AT_ONCE", 200)
    for name, gradient in gradients(model, FusedScorer(model), rows).items():
        assert torch.allclose(gradient, whole[name], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("architecture", FUSED)
def test_packed_weights_decode_as_others_do(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rounding, so that log-probs are much nearer than bf16's precision."""
    model, rows = tiny_model(architecture).bfloat16(), random_rows(3, 4)
    packed = packed_weights.pays(torch.bfloat16, CPU, len(rows))
    assert packed == torch.ops.mkldnn._is_mkldnn_bf16_supported()
    found = decoded_logps(FusedDecoder(model), rows, CPU)
    monkeypatch.setattr(packed_weights, "FEW_ROWS", 0)
    assert torch.allclose(found, decoded_logps(FusedDecoder(model), rows, CPU), rtol=0, atol=1e-3)


@pytest.mark.parametrize("architecture", ["qwen3", "gpt2", "gemma3"])
def test_gradient_checkpointing_changes_nothing(architecture: str) -> None:
    model, rows = tiny_model(architecture), random_rows(3, 3)
    truth = gradients(model, PaddedScorer(model), rows)
    backends = choose_backends(model, gradient_checkpointing=True)
    for name, gradient in gradients(model, backends.scorer, rows).items():
        assert torch.allclose(gradient, truth[name], rtol=1e-4, atol=1e-5), name
    with torch.no_grad():
        expected = PaddedScorer(model).logps(rows)
    assert torch.allclose(decoded_logps(backends.decoder, rows, CPU), expected, rtol=0, atol=2e-5)


def test_checkpointing_that_would_switch_dropout_on_is_refused() -> None:
    config = OPTConfig(
        vocab_size=40,
        hidden_size=16,
        word_embed_proj_dim=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=16,
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(
        AgentError, match=r"'opt' models do not support gradient_checkpointing without dropout"
    ):
        choose_backends(model, gradient_checkpointing=True)


def test_a_backend_with_wrong_log_probs_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused backend that forgot the rotary embedding is noticed by its log-probs."""
    monkeypatch.setattr(
        "hacrl.agents.backends.fused_network.rotate", lambda queries_keys, rotary: queries_keys
    )
    assert choose_backends(tiny_model("qwen3")).names == {
        "decode": "CachedDecoder",
        "train": "SharedPrefixScorer",
    }


def test_a_backend_that_is_refused_says_why() -> None:
    assert choose_backends(tiny_model("qwen3")).refused == {}
    refused = choose_backends(tiny_model("gpt2")).refused
    why = "the fused backend does not support the architecture 'gpt2'"
    assert refused == {"FusedDecoder": why, "FusedScorer": why}


def test_a_state_that_gradients_do_not_flow_through_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log-probs are right: only the gradient of what is before the prompt's state is not."""
    update = prefix_cache._StateLayer.update_recurrent_state

    def cut(layer: prefix_cache._StateLayer, states: Tensor, *args: int, **options: int) -> Tensor:
        return update(layer, states.detach(), *args, **options)

    monkeypatch.setattr(prefix_cache._StateLayer, "update_recurrent_state", cut)
    backends = choose_backends(tiny_model("qwen3_next"))
    assert backends.names["train"] == "PaddedScorer"
    assert "gradients differ by" in backends.refused["SharedPrefixScorer"]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_in_half_precision_rounding_is_not_taken_for_a_mistake(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(architecture).bfloat16()
    assert choose_backends(model).names == {"decode": "FusedDecoder", "train": "FusedScorer"}
    monkeypatch.setattr(
        "hacrl.agents.backends.fused_network.rotate", lambda queries_keys, rotary: queries_keys
    )
    assert "FusedScorer" in choose_backends(model).refused


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layers of type linear_attention"),
        (
            {"rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic", "factor": 2.0}},
            "rope type 'dynamic'",
        ),
    ],
)
def test_what_the_fused_backend_does_not_support(changes: dict[str, object], reason: str) -> None:
    model = tiny_model("qwen3")
    for key, value in changes.items():
        setattr(model.config, key, value)
    assert reason in (obstacle(model) or "")


def adapted(architecture: str, **changes: Any) -> Any:
    """A tiny model in peft's wrapper, its adapters no longer zero."""
    settings = LoraSettings(rank=4, **changes)
    whole = with_adapters(tiny_model(architecture), settings, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, weight in whole.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2, generator=generator)
    return whole


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3", "olmo2"])
@pytest.mark.parametrize("modules", ["all-linear", ("k_proj", "up_proj")])
@pytest.mark.parametrize("sharded", [False, True])
def test_adapters_run_in_the_fused_backend(
    architecture: str, modules: str | tuple[str, ...], sharded: bool
) -> None:
    """Log-probs and the adapters' gradients are peft's, and nothing else gets a gradient."""
    model = adapted(architecture, target_modules=modules).get_base_model()
    rows = [((5, 9, 11), (3, 4)), ((5, 9, 11), (7,)), ((2, 8), (1, 6, 4))]
    backends = choose_backends(model, sharded=sharded)
    assert backends.names["decode"] == "FusedDecoder", backends.refused
    assert backends.names["train"] == ("ShardedScorer" if sharded else "FusedScorer")
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora" in name for name in trained)
    expected = torch.autograd.grad(PlainScorer(model).logps(rows).sum(), list(trained.values()))
    found = torch.autograd.grad(backends.scorer.logps(rows).sum(), list(trained.values()))
    for name, one, other in zip(trained, found, expected, strict=True):
        largest = float(other.abs().max())
        assert largest > 0, name
        torch.testing.assert_close(one, other, atol=2e-5 * max(1.0, largest), rtol=0, msg=name)


def test_adapters_that_are_switched_off_change_nothing() -> None:
    whole = adapted("llama")
    rows = [((5, 9, 11), (3, 4))]
    scorer = choose_backends(whole.get_base_model()).scorer
    plain = PlainScorer(tiny_model("llama")).logps(rows)
    with torch.no_grad():
        assert (scorer.logps(rows) - plain).abs().max() > 1e-3
        with whole.disable_adapter():
            torch.testing.assert_close(scorer.logps(rows), plain)


def test_in_half_precision_adapters_are_not_rounded_into_the_weights() -> None:
    """A change of a thousandth of a weight is lost in bf16's eight bits, not in a sum of two products."""
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(64, 32, bias=False).bfloat16().requires_grad_(False)
    down, up = (torch.randn(size, generator=generator) * 0.01 for size in ((2, 64), (32, 2)))
    states = torch.randn(5, 64, generator=generator).bfloat16()
    one = Projection(layer.weight, None, down, up)
    assert one.merged() is one
    exact = states.float() @ (layer.weight.float() + up @ down).T
    torch.testing.assert_close(one(states), exact.bfloat16(), atol=4e-3, rtol=8e-3)
    in_fp32 = Projection(layer.weight.float(), None, down, up).merged()
    assert in_fp32.down is None
    torch.testing.assert_close(in_fp32(states.float()), exact)


def test_adapters_that_are_more_than_two_matrices_are_not_fused() -> None:
    model = adapted("llama").get_base_model()
    assert obstacle(model) is None
    layer = model.model.layers[0].mlp.up_proj
    layer.lora_dropout["default"] = torch.nn.Dropout(0.1)
    assert "plain LoRA" in (obstacle(model) or "")
