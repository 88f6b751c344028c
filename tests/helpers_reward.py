"""A reward function in a module of its own: processes that score import it in no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def even_responses(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward that untrained agents sometimes earn."""
    return [float(len(completion) % 2 == 0 and completion < "n") for completion in completions]
