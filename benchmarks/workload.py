"""What is measured: random models of two sizes, prompts for them, and how long responses get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

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

    size: Size
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

    @property
    def responses(self) -> int:
        """Responses per step."""
        return self.prompts * self.samples

    def make_prompts(self) -> list[Prompt]:
        """Prompts of random words."""
        return synthetic.make_prompts(self.size, self.prompts, self.seed)

    def make_model(self) -> PreTrainedModel:
        """A random model whose responses end with the wanted probability, always with the same weights."""
        return synthetic.make_model(
            self.size, self.make_prompts(), arch=self.arch, eos_hazard=self.eos_hazard, seed=self.seed
        )

    def save_agent(self, directory: Path) -> Path:
        """The model and its tokenizer as a directory that a recipe can name."""
        return synthetic.save_agent(directory, self.make_model(), self.size)


def workload_from_json(text: str) -> Workload:
    """What `asdict` and JSON made of a workload, for a process that runs it."""
    data = json.loads(text)
    return Workload(**data | {"size": Size(**data["size"])})
