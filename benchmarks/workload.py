"""What is measured: random models of two sizes or a real one, prompts for them, how long responses get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.real_models import RealModel, prompt_ids
from hacrl.analysis.simulate import synthetic
from hacrl.analysis.simulate.synthetic import Size
from hacrl.types import Prompt

SIZES = {
    "S": Size(hidden=128, layers=4, heads=4, vocab=64),
    "M": Size(hidden=256, layers=6, heads=4, vocab=4000),
}
NO_LEARNING = 1e-12
"""A learning rate too small to change anything: after many steps responses are still as long as before."""


@dataclass(frozen=True)
class Workload:
    """One measured step: `prompts` x `samples` responses of at most `max_new` tokens, then updates."""

    size: Size | RealModel
    """Of a random model of architecture `arch`; or a real model, whose responses end where it ends them."""
    arch: str = "qwen3"
    eos_hazard: float = 0.07
    """Probability that a response ends at any token; 0: every response has full length."""
    max_new: int = 32
    replay: bool = False
    """Both sides of a comparison train on the same recorded responses instead of sampling their own."""
    prompts: int = 16
    samples: int = 8
    updates: int = 2
    seed: int = 0
    learning_rate: float = 1e-5
    trl_rows: int | None = None
    """Responses of one of TRL's micro-batches; None: all of an update at once."""

    @property
    def responses(self) -> int:
        """Responses per step."""
        return self.prompts * self.samples

    def make_prompts(self) -> list[Prompt]:
        """Prompts of random words, or word problems."""
        if isinstance(self.size, RealModel):
            return self.size.prompts(self.prompts, self.seed)
        return synthetic.make_prompts(self.size, self.prompts, self.seed)

    def prompt_lengths(self) -> list[int]:
        """Tokens of every prompt."""
        if isinstance(self.size, RealModel):
            return [len(ids) for ids in prompt_ids(self.size, self.prompts, self.seed)]
        return [len(str(prompt.text).split()) for prompt in self.make_prompts()]

    def make_model(self, dtype: str | None = None) -> PreTrainedModel:
        """A random model whose responses end with the wanted probability, or the real one; always the same.

        `dtype` replaces that of a real model.
        """
        if isinstance(self.size, RealModel):
            return self.size.load(dtype)
        return synthetic.make_model(
            self.size, self.make_prompts(), arch=self.arch, eos_hazard=self.eos_hazard, seed=self.seed
        )

    def make_tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's."""
        if isinstance(self.size, RealModel):
            return self.size.tokenizer()
        return synthetic.make_tokenizer(self.size)

    def save_agent(self, directory: Path) -> Path:
        """A random model and its tokenizer as a directory that a recipe can name."""
        assert isinstance(self.size, Size)
        return synthetic.save_agent(directory, self.make_model(), self.size)


def workload_from_json(text: str) -> Workload:
    """What `asdict` and JSON made of a workload, for a process that runs it."""
    data = json.loads(text)
    kind = RealModel if "directory" in data["size"] else Size
    return Workload(**data | {"size": kind(**data["size"])})
