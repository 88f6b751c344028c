"""Which prompts each step draws."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from hacrl.types import Prompt


class PromptOrder:
    """Which prompts each step draws: a function of the seed and the step, so a resumed run draws the same.

    Every epoch goes through all prompts in a new random order; an incomplete last batch is left out.
    """

    def __init__(self, prompts: Sequence[Prompt], prompts_per_step: int, seed: int) -> None:
        if prompts_per_step > len(prompts):
            raise ValueError(
                f"prompts_per_step is {prompts_per_step}, but the task has only {len(prompts)} training "
                "prompts: lower prompts_per_step or give the task more prompts"
            )
        self._prompts = prompts
        self._per_step = prompts_per_step
        self._seed = seed
        self._order = lru_cache(maxsize=1)(self._shuffled)

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every prompt was drawn once, but for an incomplete last batch."""
        return len(self._prompts) // self._per_step

    def batch(self, step: int) -> list[Prompt]:
        """The prompts of a step, counted from 1."""
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        start = place * self._per_step
        return [self._prompts[index] for index in self._order(epoch)[start : start + self._per_step]]

    def others(self, step: int) -> Iterator[Prompt]:
        """All prompts but those of the step, in a random order of the step's own."""
        taken = {prompt.id for prompt in self.batch(step)}
        order = list(range(len(self._prompts)))
        random.Random(f"{self._seed}/others/{step}").shuffle(order)
        yield from (self._prompts[index] for index in order if self._prompts[index].id not in taken)

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self._prompts)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return order
