"""Real models in benchmarks: a directory with weights, and short word problems to respond to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.real_prompts import word_problems
from hacrl.agents.loading import load_model
from hacrl.agents.precision import DTYPES, choose_precision, sizes_of
from hacrl.analysis.doctor.models import ModelFacts, look_at
from hacrl.types import Prompt

MICRO_BATCH_TOKENS = 1024
"""As fast as a whole mini-batch on a CPU, in less memory."""


@dataclass(frozen=True)
class RealModel:
    """A model that is read from a directory, and what it computes in."""

    directory: str
    dtype: str = "float32"

    @classmethod
    def at_its_best(cls, directory: Path) -> RealModel:
        """With the dtype that `dtype: auto` chooses for it on this machine."""
        if not (directory / "config.json").is_file():
            raise ValueError(f"{directory} is not the directory of a model; `make models` makes two")
        return cls(str(directory.resolve()), choose_precision("auto", "cpu", sizes_of(directory)).dtype)

    @property
    def name(self) -> str:
        """Of its directory."""
        return Path(self.directory).resolve().name

    @property
    def facts(self) -> ModelFacts:
        """Its sizes."""
        facts = look_at(self.directory, None)
        if facts is None:
            raise ValueError(f"{self.directory}: its sizes are unknown, so its work cannot be counted")
        return facts

    def load(self, dtype: str | None = None) -> PreTrainedModel:
        """Its weights, in its own or another dtype."""
        model, _ = load_model(self.directory, torch.device("cpu"), DTYPES[dtype or self.dtype])
        return model

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """As the model's directory has it."""
        return AutoTokenizer.from_pretrained(self.directory)

    def prompts(self, count: int, seed: int = 0) -> list[Prompt]:
        """Word problems without solved ones, some 30 tokens; messages if the model has a chat template."""
        problems = word_problems(count, examples=0, seed=seed)
        if self.tokenizer().chat_template is None:
            return problems
        return [Prompt(each.id, ({"role": "user", "content": str(each.text)},)) for each in problems]


@cache
def prompt_ids(model: RealModel, count: int, seed: int) -> Sequence[tuple[int, ...]]:
    """The prompts in tokens, as every side of a comparison has to see them."""
    tokenizer = model.tokenizer()
    texts = [prompt.text for prompt in model.prompts(count, seed)]
    if tokenizer.chat_template is None:
        return [tuple(ids) for ids in tokenizer(texts)["input_ids"]]
    rendered = tokenizer.apply_chat_template([list(text) for text in texts], add_generation_prompt=True)
    return [tuple(ids) for ids in rendered["input_ids"]]
