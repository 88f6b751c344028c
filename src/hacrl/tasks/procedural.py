"""Procedural tasks: short questions about lists of digits or two numbers, for agents that train on a CPU.

A prompt is `sort 3126=`, its answer `1236`. If several answers are right, the column `answer` is a regular
expression that matches exactly those, and other columns hold right answers for pretraining.

A hash of its text decides whether a question belongs to the training or the test split. So no choice of
seed, size or lengths leaks test questions into training.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

from hacrl.tasks.task import Task, TaskError, equal_share
from hacrl.types import Prompt

Split = Literal["train", "test"]

TEST_SHARE = 0.2
"""Expected share of all questions that belong to the test split."""

DIGITS = "0123456789"
NOT_ZERO = DIGITS[1:]
"""So that no two lists are the same pair of numbers."""

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
            columns=self.columns(listed),
        )

    def columns(self, listed: str) -> dict[str, str]:
        """The answer, in the form that the task's verifier reads."""
        return {"answer": self.solve(listed)}


class StyledSkill(Skill):
    """A skill whose answer may be written in two styles: 1236 or 1,2,3,6, but no mixture of the two."""

    def columns(self, listed: str) -> dict[str, str]:
        """The pattern that matches both styles, and the answer in each style."""
        plain = self.solve(listed)
        commas = ",".join(plain)
        return {"answer": rf"\A(?:{plain}|{commas})\Z", "plain": plain, "commas": commas}


@dataclass(frozen=True)
class OpenSkill(Skill):
    """A skill with many right answers; `solve` gives one of them."""

    pattern: Callable[[str], str]

    def columns(self, listed: str) -> dict[str, str]:
        """The pattern that matches all right answers, and one of them."""
        return {"answer": rf"\A{self.pattern(listed)}\Z", "example": self.solve(listed)}


class PairSkill(Skill):
    """A skill about two numbers, the halves of the list: `plus 47 25=`."""

    def prompt(self, listed: str) -> Prompt:
        """The question with both numbers."""
        left, right = halves(listed)
        return replace(super().prompt(listed), text=f"{self.name} {left} {right}=")


def halves(listed: str) -> tuple[int, int]:
    """The first digits and the others as numbers; the first has one more if they cannot be halved."""
    middle = (len(listed) + 1) // 2
    return int(listed[:middle]), int(listed[middle:])


def _plus(listed: str) -> str:
    return str(sum(halves(listed)))


def _minus(listed: str) -> str:
    left, right = halves(listed)
    return str(left - right)


def _larger(listed: str) -> str:
    return str(max(halves(listed)))


def _sort(listed: str) -> str:
    return "".join(sorted(listed))


def _count(listed: str) -> str:
    """Each digit that occurs, in ascending order, followed by how often: 30131 -> 011232."""
    return "".join(f"{digit}{listed.count(digit)}" for digit in sorted(set(listed)))


def _add3(listed: str) -> str:
    return "".join(str((int(digit) + 3) % 10) for digit in listed)


def _reverse(listed: str) -> str:
    return listed[::-1]


def _pairs(listed: str) -> str:
    return "".join(2 * digit for digit in random.Random(listed).sample(listed, k=len(listed)))


def _pairs_pattern(listed: str) -> str:
    """One lookahead per digit checks its count; the rest matches as many pairs as there are digits."""
    counts = (f"(?=(?:[^{digit}]*{digit}){{{2 * listed.count(digit)}}})" for digit in sorted(set(listed)))
    return "".join(counts) + rf"(?:(\d)\1){{{len(listed)}}}"


def _climb(listed: str) -> str:
    draw = random.Random(listed)
    tops = ("".join(sorted(draw.choices(DIGITS[int(digit) :], k=2))) for digit in listed)
    return "".join(digit + top for digit, top in zip(listed, tops, strict=True))


def _climb_pattern(listed: str) -> str:
    """Each digit followed by two more, none smaller than the one before it."""
    tops = ("|".join(f"{step}[{step}-9]" for step in DIGITS[int(digit) :]) for digit in listed)
    return "".join(f"{digit}(?:{top})" for digit, top in zip(listed, tops, strict=True))


SKILLS: dict[str, Skill] = {
    skill.name: skill
    for skill in (
        Skill("sort", DIGITS, _sort),
        Skill("count", "0123", _count),
        Skill("add3", DIGITS, _add3),
        Skill("reverse", DIGITS, _reverse),
        OpenSkill("pairs", DIGITS, _pairs, _pairs_pattern),
        OpenSkill("climb", DIGITS, _climb, _climb_pattern),
        PairSkill("plus", NOT_ZERO, _plus),
        PairSkill("minus", NOT_ZERO, _minus),
        PairSkill("larger", NOT_ZERO, _larger),
    )
}

MIXTURE = ("sort", "count", "add3")
"""The skills of the task `digits`; without `reverse`, which tests transfer to an untrained skill."""

TASKS: dict[str, tuple[Skill, ...]] = {
    **{name: (skill,) for name, skill in SKILLS.items()},
    "digits": tuple(SKILLS[name] for name in MIXTURE),
    "styles": tuple(StyledSkill(name, SKILLS[name].digits, SKILLS[name].solve) for name in MIXTURE),
    "varied": (SKILLS["pairs"], SKILLS["climb"]),
    "numbers": (SKILLS["plus"], SKILLS["minus"], SKILLS["larger"]),
}
"""The skills of each task. `styles` has the questions of `digits`."""

NAMES = tuple(TASKS)


def split_of(prompt: Prompt) -> Split:
    """The split a question belongs to: a hash of its text decides, not the seed."""
    digest = hashlib.sha256(str(prompt.text).encode()).digest()
    return "test" if int.from_bytes(digest[:4]) < TEST_SHARE * 2**32 else "train"


class LazyPrompts(Sequence[Prompt], ABC):
    """A sequence of known length whose prompts are made on first access."""

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
    """Several sequences of prompts of equal length, interleaved."""

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
    """The procedural task `name`, about lists of `lengths[0]` to `lengths[1]` digits."""
    if not 3 <= lengths[0] <= lengths[1]:
        raise TaskError(
            f"task {name!r}: lengths must be (shortest, longest), both 3 or more, not {lengths!r}"
        )
    skills = TASKS[name]
    sizes: dict[Split, int] = {"train": train, "test": test}

    def draw(split: Split) -> Interleaved:
        per_skill = equal_share(name, split, sizes[split], len(skills))
        for skill in skills:
            _check_size(skill, split, per_skill, lengths)
        return Interleaved([DrawnPrompts(skill, split, per_skill, seed, lengths) for skill in skills])

    verifier = "regex" if isinstance(skills[0], StyledSkill | OpenSkill) else "exact"
    return Task(name=name, train=draw("train"), test=draw("test"), verifier=verifier)


def _check_size(skill: Skill, split: Split, size: int, lengths: tuple[int, int]) -> None:
    """Refuse sizes close to or above the number of questions there are."""
    share = TEST_SHARE if split == "test" else 1 - TEST_SHARE
    questions = sum(len(skill.digits) ** length for length in range(lengths[0], lengths[1] + 1))
    most = int(USABLE_SHARE * share * questions)
    if size > most:
        raise TaskError(
            f"task {skill.name!r}: {size} {split} prompts asked for, but lists of {lengths[0]} to "
            f"{lengths[1]} digits give at most {most}; ask for fewer or raise `lengths`"
        )
