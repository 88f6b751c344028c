"""Random models, prompts and rewards, to measure steps without data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from hacrl.analysis.doctor.models import ModelFacts
from hacrl.huggingface import no_progress_bar
from hacrl.types import Prompt

ARCHITECTURES = ("qwen3", "llama")
PAD, EOS = 0, 1
PROMPT_TOKENS = (24, 40)
"""Shortest and longest prompt; lengths are drawn uniformly between them."""
COMMON_COMPONENT = 4.0
"""Of every embedding, whose random part has length 1."""
NEVER = 20.0
"""Offset of a head row against the common direction: its token gets a probability below 1e-9."""


@dataclass(frozen=True)
class Size:
    """The shape of a model; key/value heads are half the heads, the MLP is three times the width."""

    hidden: int
    layers: int
    heads: int
    vocab: int

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.heads // 2

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    @property
    def intermediate(self) -> int:
        """Width of the MLP."""
        return 3 * self.hidden

    @property
    def facts(self) -> ModelFacts:
        """The model as the simulation sees it; the norms' few weights are left out."""
        query, key_value = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = 2 * self.hidden * (query + key_value) + 3 * self.hidden * self.intermediate
        weights = self.layers * layer + self.hidden * self.vocab
        return ModelFacts(
            parameters=weights,
            trained=weights,
            layers=self.layers,
            hidden=self.hidden,
            feed_forward=self.intermediate,
            query=query,
            key_value=key_value,
            vocabulary=self.vocab,
            context=None,
        )

    @property
    def shape(self) -> dict[str, int]:
        """The model as transformers' configurations name it, but for the vocabulary."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate,
        }


def make_prompts(size: Size, count: int, seed: int = 0) -> list[Prompt]:
    """Prompts of random words with lengths between the bounds of `PROMPT_TOKENS`."""
    rng = random.Random(seed)
    words = range(EOS + 1, size.vocab)
    lengths = [rng.randint(*PROMPT_TOKENS) for _ in range(count)]
    return [Prompt(str(i), " ".join(f"w{w}" for w in rng.choices(words, k=n))) for i, n in enumerate(lengths)]


def make_tokenizer(size: Size) -> PreTrainedTokenizerFast:
    """One token per word `w<i>`; no BOS, so none is added."""
    words = {"<pad>": PAD, "<eos>": EOS} | {f"w{i}": i for i in range(EOS + 1, size.vocab)}
    words_only = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 (a token, not a password)
    words_only.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words_only, pad_token="<pad>", eos_token="<eos>")  # noqa: S106


def make_model(
    size: Size, prompts: Sequence[Prompt], *, arch: str = "qwen3", eos_hazard: float = 0.0, seed: int = 0
) -> PreTrainedModel:
    """A random model, the same for the same arguments.

    After the words of the prompts it ends a response with the mean probability `eos_hazard` per token; with
    0 it never does.
    """
    config = AutoConfig.for_model(
        arch,
        vocab_size=size.vocab,
        **size.shape,
        max_position_embeddings=8192,
        initializer_range=size.hidden**-0.5,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tokenizer = make_tokenizer(size)
    _set_eos_hazard(model, [tokenizer(prompt.text)["input_ids"] for prompt in prompts], eos_hazard)
    return model.eval()


def save_agent(directory: Path, model: PreTrainedModel, size: Size) -> Path:
    """Save the model and its tokenizer as a directory for a recipe."""
    with no_progress_bar():
        model.save_pretrained(directory)
    make_tokenizer(size).save_pretrained(directory)
    return directory


@torch.no_grad()
def _set_eos_hazard(model: PreTrainedModel, prompts: list[list[int]], hazard: float) -> None:
    """Give EOS the mean probability `hazard` after the words of the prompts, and PAD none.

    The heads of these architectures have no bias. Instead every embedding gets the same component along one
    direction that no layer writes to, so the last hidden state always has it; moving a row of the (tied) head
    along that direction shifts the logit of its token.
    """
    embedding = model.get_input_embeddings().weight
    direction = torch.nn.functional.normalize(embedding[EOS], dim=0)
    for layer in model.base_model.layers:
        for writes in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            writes -= torch.outer(direction, direction @ writes)
    embedding -= torch.outer(embedding @ direction, direction)
    embedding += COMMON_COMPONENT * direction
    embedding[[PAD, EOS]] = -NEVER * direction
    hidden = torch.cat([model.base_model(torch.tensor([ids])).last_hidden_state[0] for ids in prompts])
    others = (hidden @ embedding.T)[:, EOS + 1 :].logsumexp(dim=1)
    low, high = -NEVER, NEVER
    for _ in range(30 if hazard > 0 else 0):
        middle = (low + high) / 2
        too_likely = (middle * (hidden @ direction) - others).sigmoid().mean() > hazard
        low, high = (low, middle) if too_likely else (middle, high)
    embedding[EOS] = low * direction


def rewards(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    """1 for about half of all responses, whatever their length, so nearly every group has both rewards."""
    return [float(sum(ids) % 2) for ids in completion_ids]
