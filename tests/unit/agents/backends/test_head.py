"""Log-probs in blocks of words: values, gradients, and that nothing larger than a block is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, LlamaConfig

from hacrl.agents.backends import head
from hacrl.agents.backends.choice import choose_backends
from hacrl.agents.backends.fused import FusedScorer, ShardedScorer
from hacrl.agents.backends.head import OutputHead
from hacrl.agents.backends.interfaces import Scorer
from hacrl.agents.backends.padded import PaddedScorer, PlainScorer
from hacrl.agents.backends.prefix_cache import SharedPrefixScorer
from hacrl.agents.loading import with_adapters
from hacrl.agents.optimiser import Optimiser, add_in_parts
from hacrl.recipe.agent_settings import LoraSettings
from helpers_agents import SLOW, Counted, Largest, Live, random_rows, tiny_model
from helpers_ranks import together

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
}
HEADS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "plain": (LlamaConfig, {}),
    "softcap": (Gemma2Config, {"head_dim": 8, "final_logit_softcapping": 2.0}),
    "multiplied": (CohereConfig, {"logit_scale": 0.25}),
    "divided": (GraniteConfig, {"logits_scaling": 4.0}),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", 60)
    monkeypatch.setattr(head, "FEWEST_WORDS", 7)


def model_with(kind: str, vocabulary: int, dtype: torch.dtype, bias: bool = False) -> Any:
    config, options = HEADS[kind]
    torch.manual_seed(0)
    settings = {**SIZES, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    model = AutoModelForCausalLM.from_config(config(vocab_size=vocabulary, **settings, **options))
    model.lm_head = nn.Linear(16, vocabulary, bias=bias)
    for parameter in model.lm_head.parameters():
        nn.init.normal_(parameter)
    return model.eval().to(dtype)


def differentiated(logps: Callable[[Tensor], Tensor], hidden: Tensor, layer: nn.Module) -> list[Tensor]:
    """Log-probs, and the gradients of a sum in which every token weighs differently."""
    layer.zero_grad()
    states = hidden.clone().requires_grad_()
    found = logps(states)
    torch.autograd.backward((found * torch.linspace(-1, 2, len(found))).sum())
    return [found.detach(), *(p.grad for p in (states, *layer.parameters()) if p.grad is not None)]


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=str)
def test_blocks_give_the_log_softmax_and_its_gradients(
    kind: str, bias: bool, dtype: torch.dtype, tolerance: float, small_blocks: None
) -> None:
    model = model_with(kind, 53, dtype, bias)
    hidden, targets = torch.randn(11, 16, dtype=dtype), torch.randint(53, (11,))
    targets[:2] = torch.tensor([0, 52])

    def plain(states: Tensor) -> Tensor:
        logits = OutputHead(model).logits(states)
        return logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)

    truth = differentiated(plain, hidden, model.lm_head)
    found = differentiated(lambda states: OutputHead(model).logps(states, targets), hidden, model.lm_head)
    assert len(found) == len(truth) == (4 if bias else 3)
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", HEADS)
def test_scale_and_softcap_are_the_model_s_own(kind: str) -> None:
    model, rows = model_with(kind, 53, torch.float32), random_rows(3, 2)
    with torch.no_grad():
        torch.testing.assert_close(PaddedScorer(model).logps(rows), PlainScorer(model).logps(rows))


def test_states_in_half_precision_have_log_probs_and_weight_gradients_in_full(small_blocks: None) -> None:
    """Under fp32 weights only the products are rounded: the gradient is near the exact one."""
    model = model_with("plain", 53, torch.float32)
    hidden, targets = torch.randn(40, 16), torch.randint(53, (40,))
    truth = differentiated(lambda states: OutputHead(model).logps(states, targets), hidden, model.lm_head)
    found = differentiated(
        lambda states: OutputHead(model).logps(states.bfloat16(), targets), hidden, model.lm_head
    )
    assert {tensor.dtype for tensor in found} == {torch.float32}
    for ours, theirs in zip(found, truth, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 0.02


@pytest.mark.parametrize("scorer", [FusedScorer, ShardedScorer, SharedPrefixScorer, PaddedScorer])
def test_no_scorer_ever_holds_more_logits_than_a_block_and_what_it_may_keep(
    scorer: Callable[[Any], Scorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """141 tokens and blocks of 2^15 logits; all logits are 4 or 8 MB, all other tensors are small."""
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", 1 << 15)
    rows = random_rows(4, 6)
    tokens = sum(len(response) for _, response in rows)

    def most(vocabulary: int, kept: int, gradients: bool = True) -> int:
        """Bytes at the same time beside the gradient of the head."""
        monkeypatch.setattr(head, "KEPT_BYTES", kept)
        model = model_with("plain", vocabulary, torch.float32)
        model.get_input_embeddings().requires_grad_(False)
        with Live() as live, torch.set_grad_enabled(gradients):
            logps = scorer(model).logps(rows)
            if gradients:
                torch.autograd.backward(logps.sum())
        return live.most - gradients * model.lm_head.weight.nbytes

    few, many = 1 << 20, 1 << 21
    assert tokens * 8192 * 4 > 2 * many
    small, large = (
        (most(vocabulary, 8 * many, gradients=False), *(most(vocabulary, kept) for kept in (0, few, many)))
        for vocabulary in (8192, 16384)
    )
    assert small == large
    without, recomputed, kept, more = small
    assert max(without, recomputed) < few
    assert kept - recomputed <= few
    assert 0.9 * (many - few) < more - kept <= many - few


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tied_weights_have_one_dense_gradient(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the head; the embeddings add theirs to it in place. Together they are what torch computes."""
    rows = random_rows(4, 3)

    def gradient(model: Any) -> Tensor:
        torch.autograd.backward(FusedScorer(model).logps(rows).sum())
        weight = model.get_input_embeddings().weight
        assert weight.grad.layout == torch.strided
        return weight.grad.float()

    tied = tiny_model("gemma3").to(dtype)
    assert tied.get_input_embeddings().weight is tied.get_output_embeddings().weight
    truth = gradient(tied)
    tied.zero_grad()
    monkeypatch.setattr(head, "LARGE_VOCABULARY", 1)
    with Counted("embedding_dense_backward") as dense:
        found = gradient(tied)
    assert dense.calls == 0
    assert (found - truth).norm() < (1e-6 if dtype == torch.float32 else 0.01) * truth.norm()
    assert not tied.get_input_embeddings().sparse, "as its owner had it"
    apart = tiny_model("llama")
    assert apart.get_input_embeddings().weight is not apart.get_output_embeddings().weight
    with Counted("embedding_dense_backward") as dense:
        gradient(apart)
    assert dense.calls == 1


@pytest.mark.usefixtures("small_blocks")
def test_under_an_optimiser_gradients_in_half_precision_are_added_in_fp32_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No gradient of all words is ever there in bf16: only the embeddings of a batch's tokens have one."""
    monkeypatch.setattr(head, "LARGE_VOCABULARY", 1)
    layouts = []

    def add(total: Tensor, summand: Tensor) -> None:
        layouts.append(summand.layout)
        add_in_parts(total, summand)

    monkeypatch.setattr("hacrl.agents.optimiser.add_in_parts", add)
    micro_batches = [random_rows(4, 3, seed=seed) for seed in range(3)]
    model = tiny_model("gemma3").bfloat16()
    weight = model.get_input_embeddings().weight
    parts = []
    for rows in micro_batches:
        torch.autograd.backward(FusedScorer(model).logps(rows).sum())
        parts.append(weight.grad.float())
        model.zero_grad()
    optimiser = Optimiser({"words": weight}, SLOW)
    for rows in micro_batches:
        torch.autograd.backward(FusedScorer(model).logps(rows).sum())
    assert layouts == [torch.sparse_coo] * 3
    found = optimiser.gradients()["words"]
    truth = sum(parts, torch.zeros_like(parts[0]))
    assert found.layout == torch.strided
    assert (found - truth).norm() < 0.005 * truth.norm()
    optimiser.discard_gradients()
    assert optimiser.gradients() == {}


@pytest.mark.parametrize(("blocks", "words"), [(8, 53), (7.5, 49), (1, 7), (0, 0)])
def test_what_is_kept_for_the_backward_pass_has_a_limit(
    blocks: float, words: int, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many of the 8 blocks of at most 7 words as there is room for; the gradient is the same."""
    model = model_with("plain", 53, torch.float32)
    hidden, targets = torch.randn(40, 16), torch.randint(53, (40,))
    truth = differentiated(lambda states: OutputHead(model).logps(states, targets), hidden, model.lm_head)
    monkeypatch.setattr(head, "KEPT_BYTES", int(blocks * 40 * 7 * 4))
    model.zero_grad()
    logps = OutputHead(model).logps(hidden.clone().requires_grad_(), targets)
    assert sum(block.nbytes for block in logps.grad_fn.kept.values()) == 40 * words * 4  # type: ignore[union-attr]
    found = differentiated(lambda states: OutputHead(model).logps(states, targets), hidden, model.lm_head)
    for ours, theirs in zip(found, truth, strict=True):
        assert torch.equal(ours, theirs)


def test_a_head_with_adapters_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", 1 << 14)
    model, rows = model_with("plain", 8192, torch.float32), random_rows(4, 6)
    lora = LoraSettings(rank=2, target_modules=("lm_head",))
    adapted = with_adapters(model, lora, 0).get_base_model()
    tokens = sum(len(response) for _, response in rows)
    with Largest() as largest:
        torch.autograd.backward(PaddedScorer(adapted).logps(rows).sum())
    assert largest.elements < tokens * 8192 / 4


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("architecture", "expected"), [("gemma3", "ShardedScorer"), ("gemma2", "PaddedScorer")]
)
def test_a_sharded_model_computes_blocks_and_the_same_gradient(
    architecture: str, expected: str, small_blocks: None
) -> None:
    rows = random_rows(3, 3)

    def gradient(ranks: Any = None) -> tuple[str, list[Tensor]]:
        model = tiny_model(architecture)
        backends = choose_backends(model, sharded=True)
        if ranks is not None:
            ranks.shard(model)
        torch.autograd.backward(backends.scorer.logps(rows).sum() / (ranks.count if ranks else 1))
        grads = [p.grad.full_tensor() if ranks else p.grad for p in model.parameters()]
        return backends.names["train"], grads

    name, truth = gradient()
    assert name == expected
    for sharded_name, sharded in together(gradient):
        assert sharded_name == name
        for ours, theirs in zip(sharded, truth, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", HEADS)
def test_logits_kept_for_the_backward_pass_change_nothing(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits as logits that are computed again, in a second backward pass as well."""
    model = model_with(kind, 50, dtype)
    hidden, targets = torch.randn(9, 16).to(dtype), torch.arange(9) * 5

    def twice() -> list[Tensor]:
        states = hidden.clone().requires_grad_()
        logps = OutputHead(model).logps(states, targets)
        inputs = (states, *model.lm_head.parameters())
        first = torch.autograd.grad(logps.sum(), inputs, retain_graph=True)
        return [logps.detach(), *first, *torch.autograd.grad(logps.sum(), inputs)]

    kept = twice()
    monkeypatch.setattr(head, "KEPT_BYTES", 0)
    for one, other in zip(kept, twice(), strict=True):
        assert torch.equal(one, other)
