"""Tasks made by a program: short questions about lists of digits, for agents small enough to train on a CPU.

A prompt reads `sort 3126=` and its answer `1236`. Whether a question belongs to the training or to the test
split follows from a hash of its text alone: no choice of seeds, sizes or lengths can leak one into the other.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from hacrl.tasks.task import Task, TaskError
from hacrl.types import Prompt

Split = Literal["train", "test"]

TEST_SHARE = 0.2
"""Expected share of all questions that belong to the test split."""

USABLE_SHARE = 0.8
"""Share of a split that may be drawn: drawing without repetition slows down towards the last question."""


@dataclass(frozen=True)
class Skill:
    """One kind of question: which digits its lists hold and how the answer follows from the list."""

    name: str
    digits: str
    solve: Callable[[str], str]

    def prompt(self, listed: str) -> Prompt:
        """The question about one list of digits, with its answer."""
        return Prompt(
            id=f"{self.name}-{listed}",
            text=f"{self.name} {listed}=",
            kind=self.name,
            columns={"answer": self.solve(listed)},
        )


def _sort(listed: str) -> str:
    return "".join(sorted(listed))


def _count(listed: str) -> str:
    """Each digit that occurs, in ascending order, followed by how often: 30131 -> 011232."""
    return "".join(f"{digit}{listed.count(digit)}" for digit in sorted(set(listed)))


def _add3(listed: str) -> str:
    return "".join(str((int(digit) + 3) % 10) for digit in listed)


def _reverse(listed: str) -> str:
    return listed[::-1]


SKILLS = {
    skill.name: skill
    for skill in (
        Skill("sort", "0123456789", _sort),
        Skill("count", "0123", _count),
        Skill("add3", "0123456789", _add3),
        Skill("reverse", "0123456789", _reverse),
    )
}

MIXTURE = ("sort", "count", "add3")
"""The skills of the task `digits`; `reverse` is left out, to test transfer to a skill nobody trains."""

NAMES = (*SKILLS, "digits")


def split_of(prompt: Prompt) -> Split:
    """The split a question belongs to, whatever the seed: a hash of its text decides."""
    digest = hashlib.sha256(str(prompt.text).encode()).digest()
    return "test" if int.from_bytes(digest[:4]) < TEST_SHARE * 2**32 else "train"


class LazyPrompts(Sequence[Prompt], ABC):
    """A sequence of known length whose prompts are made when first asked for."""

    @abstractmethod
    def at(self, position: int) -> Prompt:
        """The prompt at `position`, 0 <= position < len(self)."""

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...
    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        positions = range(len(self))[index]
        return self.at(positions) if isinstance(positions, int) else [self.at(i) for i in positions]


class DrawnPrompts(LazyPrompts):
    """Distinct random questions of one skill and split; the same ones for the same seed."""

    def __init__(self, skill: Skill, split: Split, size: int, seed: int, lengths: tuple[int, int]) -> None:
        self._skill = skill
        self._split = split
        self._size = size
        self._lengths = lengths
        self._random = random.Random(f"{skill.name}/{split}/{seed}")
        self._drawn: list[Prompt] = []
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return self._size

    def at(self, position: int) -> Prompt:
        """Draw up to `position`; earlier draws are kept."""
        while len(self._drawn) <= position:
            prompt = self._draw()
            if prompt.id not in self._ids and split_of(prompt) == self._split:
                self._ids.add(prompt.id)
                self._drawn.append(prompt)
        return self._drawn[position]

    def _draw(self) -> Prompt:
        length = self._random.randint(*self._lengths)
        return self._skill.prompt("".join(self._random.choices(self._skill.digits, k=length)))


class Interleaved(LazyPrompts):
    """Several equally long sequences of prompts, taken in turn."""

    def __init__(self, parts: Sequence[Sequence[Prompt]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def at(self, position: int) -> Prompt:
        """One prompt of each part in turn."""
        turn, part = divmod(position, len(self._parts))
        return self._parts[part][turn]


def load_procedural(
    name: str, *, train: int = 3000, test: int = 600, seed: int = 0, lengths: tuple[int, int] = (3, 6)
) -> Task:
    """The task `name` of `NAMES`: so many prompts, about lists of `lengths[0]` to `lengths[1]` digits."""
    if not 3 <= lengths[0] <= lengths[1]:
        raise TaskError(
            f"task {name!r}: lengths must be (shortest, longest), both 3 or more, not {lengths!r}"
        )
    skills = [SKILLS[skill] for skill in (MIXTURE if name == "digits" else (name,))]
    sizes: dict[Split, int] = {"train": train, "test": test}

    def draw(split: Split) -> Interleaved:
        per_skill, rest = divmod(sizes[split], len(skills))
        if rest or per_skill < 1:
            raise TaskError(
                f"task {name!r}: {split} must be a positive multiple of {len(skills)}, not {sizes[split]}"
            )
        for skill in skills:
            _check_size(skill, split, per_skill, lengths)
        return Interleaved([DrawnPrompts(skill, split, per_skill, seed, lengths) for skill in skills])

    return Task(name=name, train=draw("train"), test=draw("test"), verifier="exact")


def _check_size(skill: Skill, split: Split, size: int, lengths: tuple[int, int]) -> None:
    """Refuse to draw nearly every question there is, or more."""
    share = TEST_SHARE if split == "test" else 1 - TEST_SHARE
    questions = sum(len(skill.digits) ** length for length in range(lengths[0], lengths[1] + 1))
    most = int(USABLE_SHARE * share * questions)
    if size > most:
        raise TaskError(
            f"task {skill.name!r}: {size} {split} prompts asked for, but lists of {lengths[0]} to "
            f"{lengths[1]} digits give at most {most}; ask for fewer or raise `lengths`"
        )
