"""Tiny random models of several architectures, a character tokenizer, and rows to train on."""

from __future__ import annotations

import copy
import random
import string
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    PhiConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
    SmolLM3Config,
)

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.policy import Policy
from hacrl.algorithm import gspo_loss
from hacrl.algorithm.batch import SourceData
from hacrl.recipe.settings import OptimiserSettings
from hacrl.types import Prompt, TrainingRow

PAD, EOS = 0, 1
CHARACTERS = string.ascii_lowercase + string.digits + " +=?"
VOCABULARY = 2 + len(CHARACTERS)

_ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
"""Every configuration has a copy: some write into it, which vLLM reads and transformers does not."""
_SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": None,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}

CONFIGS = {
    "qwen3": Qwen3Config(**_GROUPED, head_dim=12, rope_parameters=dict(_ROPE), tie_word_embeddings=True),
    "qwen2": Qwen2Config(**_GROUPED, rope_parameters=dict(_ROPE)),
    "llama": LlamaConfig(
        **{**_GROUPED, "pad_token_id": None},
        attention_bias=True,
        rope_parameters={
            "rope_theta": 10000.0,
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "gemma3": Gemma3TextConfig(
        **_GROUPED,
        head_dim=8,
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "gemma3_vision": Gemma3Config(
        text_config={
            **_GROUPED,
            "head_dim": 8,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        mm_tokens_per_image=4,
        image_token_index=VOCABULARY,
        boi_token_index=VOCABULARY,
        eoi_token_index=VOCABULARY,
    ),
    "mistral": MistralConfig(**_GROUPED, head_dim=8, sliding_window=5, rope_parameters=dict(_ROPE)),
    "smollm3": SmolLM3Config(**_GROUPED, no_rope_layers=[1, 0], rope_parameters=dict(_ROPE)),
    "olmo2": Olmo2Config(**_GROUPED, rope_parameters=dict(_ROPE)),
    "lfm2": Lfm2Config(
        **_GROUPED,
        block_auto_adjust_ff_dim=False,
        layer_types=["conv", "full_attention"],
        rope_parameters=dict(_ROPE),
    ),
    "qwen3_next": Qwen3NextConfig(
        **_GROUPED,
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=2,
        linear_num_key_heads=1,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        rope_parameters=dict(_ROPE),
    ),
    "gemma2": Gemma2Config(
        **_GROUPED, head_dim=8, sliding_window=6, layer_types=["sliding_attention", "full_attention"]
    ),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        bos_token_id=None,
        eos_token_id=EOS,
    ),
    "phi": PhiConfig(**_SMALL),
    "llama4": Llama4TextConfig(
        **_GROUPED,
        head_dim=8,
        intermediate_size_mlp=48,
        num_local_experts=2,
        num_experts_per_tok=1,
        attention_chunk_size=4,
        layer_types=["chunked_attention", "full_attention"],
        no_rope_layers=[1, 0],
        rope_parameters=dict(_ROPE),
    ),
}
FUSED = ("qwen3", "qwen2", "llama", "gemma3", "gemma3_vision", "mistral", "smollm3", "olmo2")


def tiny_model(architecture: str, seed: int = 0) -> PreTrainedModel:
    """Weights several times larger than an untrained model's, so that mistakes show in the log-probs."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(copy.deepcopy(CONFIGS[architecture])).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.15)
            for name, parameter in model.named_parameters():
                if name.endswith("A_log"):
                    parameter.sub_(4.0)  # a recurrent state that lasts
    return model


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character."""
    vocabulary = {"<pad>": PAD, "<eos>": EOS, **{c: n + 2 for n, c in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")


SLOW = OptimiserSettings(learning_rate=1e-6, kl=0.0)
"""For tests that do not care how fast an agent learns."""


def tiny_policy(
    architecture: str = "qwen3",
    optimiser: OptimiserSettings | None = SLOW,
    *,
    name: str = "ada",
    seed: int = 0,
    **options: Any,
) -> Policy:
    """A policy over a fresh tiny model."""
    return Policy(name, tiny_model(architecture, seed), tiny_tokenizer(), optimiser=optimiser, **options)


def text_prompts(count: int, seed: int = 0) -> list[Prompt]:
    """Prompts of 1 to 12 random characters."""
    rng = random.Random(seed)
    return [
        Prompt(id=f"p{n}", text="".join(rng.choices(CHARACTERS, k=rng.randint(1, 12)))) for n in range(count)
    ]


def random_rows(prompts: int, per_prompt: int, longest: int = 10, seed: int = 0) -> list[Row]:
    """Prompts and responses of random tokens (the pad token is one of them) and lengths, shuffled."""
    rng = random.Random(seed)

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(rng.choices([PAD, *range(2, VOCABULARY)], k=length))

    starts = [tokens(rng.randint(1, longest)) for _ in range(prompts)]
    rows = [(start, tokens(rng.randint(1, longest))) for start in starts for _ in range(per_prompt)]
    rng.shuffle(rows)
    return rows


def training_rows(rows: Sequence[Row], *, own: bool = True, seed: int = 0) -> tuple[TrainingRow, ...]:
    """Rows with random advantages whose source is near the learner, so that GSPO's clip leaves gradients."""
    rng = random.Random(seed)
    return tuple(
        TrainingRow(
            prompt_id=str(number),
            prompt_ids=prompt,
            response_ids=response,
            source="ada" if own else "bob",
            own=own,
            source_mean_logp=-4.0 + rng.random(),
            source_logps=tuple(-4.0 for _ in response) if own else (),
            advantage=rng.uniform(-1, 1),
            omega=1.0,
        )
        for number, (prompt, response) in enumerate(rows)
    )


def likelihood(logps: torch.Tensor, mask: torch.Tensor, data: SourceData, update: int) -> torch.Tensor:
    """Minus advantage times mean log-prob: smooth, so that numbers can be compared tightly."""
    return -data.advantage * (logps * mask).sum(1) / mask.sum(1)


def gspo(logps: torch.Tensor, mask: torch.Tensor, data: SourceData, update: int) -> torch.Tensor:
    """The GSPO objective on its own."""
    return gspo_loss(logps, mask, data.source_mean_logp, data.advantage)


class Counted(TorchDispatchMode):
    """How often torch called one of its operations."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func.overloadpacket.__name__ == self._name
        return func(*args, **(kwargs or {}))


class Live(TorchDispatchMode):
    """The most bytes of computed tensors that were there at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._sizes: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if _dense(tensor)}
        for tensor in filter(_dense, tree_leaves(result)):
            storage = tensor.untyped_storage()
            if storage._cdata not in given:  # views, and what is changed in place, are not new
                self._sizes[StorageWeakRef(storage)] = storage.nbytes()
        self._sizes = {storage: size for storage, size in self._sizes.items() if not storage.expired()}
        self.most = max(self.most, sum(self._sizes.values()))
        return result


def _dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided


class Largest(TorchDispatchMode):
    """The most elements of any tensor that was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result
