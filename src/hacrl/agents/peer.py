"""An agent without a model in this run: it responds, and can do nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.errors import AgentError
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm.batch import Objective
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Encoder, MiniBatch, Prompt, Rollout


class Peer:
    """What an `Agent` needs a model for is refused; subclasses sample, and have a fingerprint."""

    parameters = 0
    context_length = None

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def encoder(self) -> Encoder:
        """It has no tokens here."""
        return self._refuse("encode")

    def start_sampling(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> bool:
        """Most peers have their responses at hand."""
        return False

    def finish_sampling(self) -> list[Rollout]:
        """Nothing was started."""
        raise AssertionError("nothing was started")

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Refused."""
        return self._refuse("score")

    def features(self, prompts: Sequence[Prompt]) -> list[tuple[float, ...]]:
        """Refused."""
        return self._refuse("describe prompts")

    def prepare(self, mini_batches: Sequence[MiniBatch], ratios: bool = True) -> tuple[MiniBatch, ...]:
        """Refused."""
        return self._refuse("train")

    def update(
        self,
        mini_batches: Sequence[MiniBatch],
        objective: Objective,
        done: int = 0,
        steps_done: float | None = None,
    ) -> list[UpdateReport]:
        """Refused."""
        return self._refuse("train")

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """Refused."""
        return self._refuse("train")

    def memory(self) -> list[int]:
        """None to speak of."""
        return []

    def write_state(self, folder: str | Path) -> None:
        """Refused."""
        self._refuse("be saved")

    def read_state(self, folder: str | Path) -> None:
        """Refused."""
        self._refuse("be restored")

    def save(self, directory: str | Path) -> None:
        """Refused."""
        self._refuse("be exported")

    def _refuse(self, what: str) -> NoReturn:
        raise AgentError(f"agent {self.name!r} only responds, it cannot {what}: it has no model in this run")
