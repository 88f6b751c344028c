"""A task: prompts to train on, prompts to test on, and how responses are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hacrl.types import Prompt


class TaskError(ValueError):
    """A task that cannot be used; the message names the file or setting, the reason and how to fix it."""


@dataclass(frozen=True)
class Task:
    """Prompts with checkable answers; the gold answer is `Prompt.columns["answer"]`."""

    name: str
    train: Sequence[Prompt]
    test: Sequence[Prompt]
    verifier: str
    """Name of the built-in verifier that scores a response."""
    test_samples: int = 1
    """Responses per test prompt; the best one counts: 1 is avg@1, k is best@k."""

    @property
    def protocol(self) -> str:
        """How test accuracy is reported: "avg@1" or "best@k"."""
        return "avg@1" if self.test_samples == 1 else f"best@{self.test_samples}"


def equal_share(task: str, split: str, size: int, parts: int) -> int:
    """How many of a split's prompts each of so many kinds has; an error if they cannot have equally many."""
    if size < 1 or size % parts:
        wanted = f"a positive multiple of {parts}" if parts > 1 else "at least 1"
        raise TaskError(f"task {task!r}: {split} must be {wanted}, not {size}")
    return size // parts
