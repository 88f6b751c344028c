"""What both sides run: a random model of a given size, prompts, and how long answers get."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from hacrl.types import Prompt

ARCHITECTURES = ("qwen3", "llama")
PAD, EOS = 0, 1
PROMPT_TOKENS = (24, 40)
"""Shortest and longest prompt; lengths are drawn uniformly between them."""
COMMON_COMPONENT = 4.0
"""Of every embedding, whose random part has length 1."""
NEVER = 20.0
"""A row of the head this far against the common direction gives its token a probability below 1e-9."""


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


SIZES = {
    "S": Size(hidden=128, layers=4, heads=4, vocab=64),
    "M": Size(hidden=256, layers=6, heads=4, vocab=4000),
}


@dataclass(frozen=True)
class Workload:
    """One measured step: `prompts` x `samples` answers of at most `max_new` tokens, then updates."""

    size: Size
    arch: str = "qwen3"
    eos_hazard: float = 0.07
    """Probability that an answer ends at any token; 0: every answer has full length."""
    max_new: int = 32
    replay: bool = False
    """Both sides train on the same recorded answers instead of sampling their own."""
    prompts: int = 16
    samples: int = 8
    updates: int = 2
    seed: int = 0
    learning_rate: float = 1e-5

    @property
    def responses(self) -> int:
        """Answers per step."""
        return self.prompts * self.samples


def workload_from_json(text: str) -> Workload:
    """What `asdict` and JSON made of a workload, for a process that runs it."""
    data = json.loads(text)
    return Workload(**data | {"size": Size(**data["size"])})


def make_prompts(work: Workload) -> list[Prompt]:
    """Prompts of random words with lengths between the bounds of `PROMPT_TOKENS`."""
    rng = random.Random(work.seed)
    words = range(EOS + 1, work.size.vocab)
    lengths = [rng.randint(*PROMPT_TOKENS) for _ in range(work.prompts)]
    return [Prompt(str(i), " ".join(f"w{w}" for w in rng.choices(words, k=n))) for i, n in enumerate(lengths)]


def make_tokenizer(size: Size) -> PreTrainedTokenizerFast:
    """One token per word `w<i>`; no BOS, so that nobody adds one."""
    words = {"<pad>": PAD, "<eos>": EOS} | {f"w{i}": i for i in range(EOS + 1, size.vocab)}
    words_only = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 (a token, not a password)
    words_only.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words_only, pad_token="<pad>", eos_token="<eos>")  # noqa: S106


def make_model(work: Workload) -> PreTrainedModel:
    """A random model whose answers end with the wanted hazard; the same weights for the same workload."""
    size = work.size
    config = AutoConfig.for_model(
        work.arch,
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
        torch.manual_seed(work.seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tokenizer = make_tokenizer(size)
    _set_eos_hazard(
        model, [tokenizer(prompt.text)["input_ids"] for prompt in make_prompts(work)], work.eos_hazard
    )
    return model.eval()


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


def reward(token_ids: Sequence[int]) -> float:
    """1 for about half of all answers, whatever their length: every group has something to learn from."""
    return float(sum(token_ids) % 2)
