"""What the training loop needs from an agent, whichever process the agent runs in."""

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
    """A `Policy` in this process, or a stand-in for one in another process (`hacrl.runtime`)."""

    @property
    def name(self) -> str:
        """Its own name."""

    @property
    def encoder(self) -> Encoder:
        """Text to tokens and back."""

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

    def start_sampling(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> bool:
        """Begin with what `sample` does, by the present weights, and let other calls follow meanwhile.

        False, and nothing happens, where that would not save any time.
        """

    def finish_sampling(self) -> list[Rollout]:
        """The responses that `start_sampling` began to draw."""

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Log-prob of every response token of (prompt ids, response ids) pairs."""

    def features(self, prompts: Sequence[Prompt]) -> list[tuple[float, ...]]:
        """What the model makes of each prompt, as a few numbers (see `hacrl.agents.features`)."""

    def prepare(self, mini_batches: Sequence[MiniBatch], ratios: bool = True) -> tuple[MiniBatch, ...]:
        """A step's rows before its first update, with the critic's values and advantages.

        In half precision, and if the objective takes `ratios`, also with log-probs of own rows as training
        computes them. Otherwise unchanged.
        """

    def update(
        self,
        mini_batches: Sequence[MiniBatch],
        objective: Objective,
        done: int = 0,
        steps_done: float | None = None,
    ) -> list[UpdateReport]:
        """One optimiser step per mini-batch; `done` counts the updates already made in this step.

        `steps_done` counts the steps of the run, for the learning rate.
        """

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """Flat gradient of one update's loss; nothing changes."""

    def fingerprint(self) -> str:
        """16 hex digits that change when a weight changes, and only then (see `hacrl.agents.fingerprint`)."""

    def memory(self) -> list[int]:
        """Bytes in use by each of its processes (see `hacrl.agents.memory_use`)."""

    def write_state(self, folder: str | Path) -> None:
        """Write the exact training state as safetensors files; they are on the disk when it returns."""

    def read_state(self, folder: str | Path) -> None:
        """Restore the training state from `folder`."""

    def save(self, directory: str | Path) -> None:
        """Write model and tokenizer in `save_pretrained` form."""
