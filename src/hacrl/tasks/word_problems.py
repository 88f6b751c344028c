"""The task `word_problems`: short questions in words whose answer is a number, for small language models.

Training and test questions are made from different templates (`word_templates.yaml`): no text is in both, and
who scores on test questions has not only learned the sentences by heart.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from hacrl.tasks.procedural import Interleaved, Split
from hacrl.tasks.task import Task, TaskError, equal_share
from hacrl.types import Prompt

NAME = "word_problems"

TEMPLATES = Path(__file__).with_name("word_templates.yaml")
TEST_TEMPLATES = 4
"""One template in so many is for testing only."""

SMALLEST = 15
"""The setting `largest` is at least this: below, many templates have no numbers that fit."""
TRIES = 1000
"""Draws of numbers and names for a new question of a template before it counts as used up."""

RESULTS = "xyzw"
"""What the results of a template's steps are called."""
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}
SENTENCES = {
    "+": "{left} and {right} make {left} + {right} = {result}.",
    "-": "{left} take away {right} is {left} - {right} = {result}.",
    "*": "{left} times {right} is {left} * {right} = {result}.",
    "/": "{left} divided by {right} is {left} / {right} = {result}.",
    "mod": "{left} divided by {right} leaves {result}.",
    "max": "The larger one of {left} and {right} is {result}.",
    "min": "The smaller one of {left} and {right} is {result}.",
}
"""How a solution tells a step."""

NAMES = ("Ann", "Ben", "Mia", "Tom", "Eve", "Sam", "Lea", "Max", "Ida", "Leo", "Zoe", "Jim")
THINGS = (
    "apples", "books", "coins", "pencils", "stones", "cards", "stamps", "marbles", "shells", "buttons",
    "eggs", "flowers", "balls", "cups", "keys",
)  # fmt: skip


@dataclass(frozen=True)
class Template:
    """A question with places for names and numbers, and the steps that solve it."""

    text: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """Questions of one sort."""

    name: str
    templates: tuple[Template, ...]
    largest: int | None
    """Bound of the drawn numbers where the world sets one, as for the minutes of an hour."""
    given: int
    """How many of the first steps are not part of the solution, because the question tells their results."""

    def for_split(self, split: Split, most: int | None) -> tuple[Template, ...]:
        """The first templates are for training, at most `most` of them, and the last quarter for testing."""
        first = len(self.templates) - len(self.templates) // TEST_TEMPLATES
        return self.templates[first:] if split == "test" else self.templates[:first][:most]


@cache
def kinds() -> dict[str, Kind]:
    """All kinds of questions."""
    return {name: _kind(name, **entry) for name, entry in yaml.safe_load(TEMPLATES.read_text()).items()}


def _kind(
    name: str, templates: Mapping[str, Sequence[str]], largest: int | None = None, given: int = 0
) -> Kind:
    """Templates of different steps are taken in turn, so that training and testing have all of them."""
    groups = [
        [Template(text, tuple(steps.split("; "))) for text in texts] for steps, texts in templates.items()
    ]
    in_turn = [each for turn in itertools.zip_longest(*groups) for each in turn if each is not None]
    return Kind(name, tuple(in_turn), largest, given)


def load_word_problems(
    name: str = NAME,
    *,
    kinds: Sequence[str] | None = None,
    train: int = 3000,
    test: int = 600,
    largest: int = 50,
    templates: int | None = None,
    seed: int = 0,
) -> Task:
    """Questions of all `kinds` in turn, with numbers up to `largest`; `templates`: of each kind, at most."""
    chosen = _chosen(kinds)
    if largest < SMALLEST or (templates is not None and templates < 1):
        raise TaskError(f"task {name!r}: largest must be at least {SMALLEST}, and templates at least 1")
    sizes: dict[Split, int] = {"train": train, "test": test}

    def draw(split: Split) -> Interleaved:
        of_each = equal_share(name, split, sizes[split], len(chosen))
        columns = [
            _questions(
                kind,
                kind.for_split(split, templates),
                of_each,
                largest,
                random.Random(f"{kind.name}/{split}/{seed}"),
            )
            for kind in chosen
        ]
        return Interleaved(columns)

    named = f"{name}: {chosen[0].name}" if len(chosen) == 1 else name
    return Task(name=named, train=draw("train"), test=draw("test"), verifier="numeric")


def _chosen(names: Sequence[str] | None) -> list[Kind]:
    known = kinds()
    wanted = list(known) if names is None else list(names)
    if unknown := [name for name in wanted if name not in known]:
        raise TaskError(f"task {NAME!r}: no kind {unknown[0]!r}; there are: {', '.join(known)}")
    if not wanted or len(set(wanted)) < len(wanted):
        raise TaskError(f"task {NAME!r}: kinds must be different names, at least one, not {wanted}")
    return [known[name] for name in wanted]


def _questions(
    kind: Kind, templates: Sequence[Template], size: int, largest: int, rng: random.Random
) -> list[Prompt]:
    """`size` distinct questions. Templates are taken in turn: how many numbers fit one does not matter."""
    drawn: dict[str, Prompt] = {}
    waiting = deque(templates)
    while len(drawn) < size and waiting:
        template = waiting.popleft()
        tries = (_draw(kind, template, largest, rng) for _ in range(TRIES))
        prompt = next((new for new in tries if new is not None and new.id not in drawn), None)
        if prompt is not None:
            drawn[prompt.id] = prompt
            waiting.append(template)
    if len(drawn) < size:
        raise TaskError(
            f"task {NAME!r}: only {len(drawn)} of {size} different questions found for the kind "
            f"{kind.name!r}; ask for fewer, or raise `largest` or `templates`"
        )
    return list(drawn.values())


def _draw(kind: Kind, template: Template, largest: int, rng: random.Random) -> Prompt | None:
    """A question with random names and numbers; None if the numbers do not fit."""
    most = min(largest, kind.largest or largest)
    found = solve(template, {letter: rng.randint(2, most) for letter in "abc"}, most)
    if found is None:
        return None
    name, other = rng.sample(NAMES, k=2)
    text = template.text.format(name=name, other=other, things=rng.choice(THINGS), **found)
    answer = str(found[RESULTS[len(template.steps) - 1]])
    return Prompt(
        id=f"{kind.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}",
        text=text,
        kind=kind.name,
        columns={"answer": answer, **_worked(kind, template, found, answer)},
    )


def solve(template: Template, numbers: Mapping[str, int], largest: int) -> dict[str, int] | None:
    """The numbers with the results of all steps; None if a result is not a whole number from 1 to `largest`.

    A step with a constant may go beyond: "how many minutes are 3 hours" is about the 3.
    """
    found = dict(numbers)
    for name, step in zip(RESULTS, template.steps, strict=False):
        left, sign, right = _operands(step, found)
        found[name] = OPERATIONS[sign](left, right)
        bounded = found[name] <= largest or any(word.isdigit() for word in step.split())
        if not (bounded and found[name] >= 1 and _sensible(left, sign, right)):
            return None
    return found


def _sensible(left: int, sign: str, right: int) -> bool:
    """Nothing is shared unequally, packed into boxes it does not fill, or compared with its like."""
    if sign == "/":
        return left % right == 0 and left != right
    return left > right if sign == "mod" else sign not in ("max", "min") or left != right


def _operands(step: str, numbers: Mapping[str, int]) -> tuple[int, str, int]:
    left, sign, right = step.split()
    return numbers.get(left) or int(left), sign, numbers.get(right) or int(right)


def _worked(kind: Kind, template: Template, found: Mapping[str, int], answer: str) -> dict[str, str]:
    """The steps as equations and in words, as examples for a model that is to reason."""
    equations, sentences = [], []
    for name, step in list(zip(RESULTS, template.steps, strict=False))[kind.given :]:
        left, sign, right = _operands(step, found)
        equations.append(f"{left} {sign} {right} = {found[name]}")
        sentences.append(SENTENCES[sign].format(left=left, right=right, result=found[name]))
    told = " ".join([*sentences, f"The answer is {answer}."])
    return {"equation": ", ".join(equations), "solution": told}
