"""What a training loop asks of an agent, wherever the agent lives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm.batch import Objective
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Encoder, MiniBatch, Prompt, Rollout


class Agent(Protocol):
    """`Policy` is one in this process; a runtime may keep it in another one (`hacrl.runtime`)."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def encoder(self) -> Encoder:
        """How it writes prompts and responses."""

    @property
    def parameters(self) -> int:
        """How many weights it has."""

    @property
    def context_length(self) -> int | None:
        """Most tokens of a prompt and its response together; None: no limit."""

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """Draw `samples` responses to each prompt, in order of prompts, then samples."""

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Log-prob of every response token of (prompt ids, response ids) pairs."""

    def judge(self, mini_batches: Sequence[MiniBatch]) -> tuple[MiniBatch, ...]:
        """A step's rows with what the critic says of them; as they are when there is none."""

    def update(
        self, mini_batches: Sequence[MiniBatch], objective: Objective, done: int = 0
    ) -> list[UpdateReport]:
        """One optimiser step per mini-batch; `done` counts those made in this step by earlier calls."""

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """Flat gradient of one update's loss; nothing changes."""

    def fingerprint(self) -> str:
        """16 hex digits that change exactly when a weight changes."""

    def write_state(self, folder: str | Path) -> None:
        """Write what training needs to go on exactly; safetensors files, on the disk when it returns."""

    def read_state(self, folder: str | Path) -> None:
        """Go on where `folder` was written."""

    def save(self, directory: str | Path) -> None:
        """Write model and tokenizer in `save_pretrained` form."""
