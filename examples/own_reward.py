"""A custom reward function with TRL's signature."""

from typing import Any


def closeness(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """The share of characters that are right, from 0 to 1: partial credit."""
    return [_close(completion, gold) for completion, gold in zip(completions, answer, strict=True)]


def _close(completion: str, gold: str) -> float:
    right = sum(given == wanted for given, wanted in zip(completion, gold, strict=False))
    return right / max(len(completion), len(gold))
