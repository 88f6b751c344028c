"""Prompts for real models: short word problems, with two solved ones in front of each."""

from __future__ import annotations

import random

from hacrl.types import Prompt

NAMES = ("Ann", "Ben", "Mia", "Tom", "Eve", "Sam", "Lea", "Max")
THINGS = ("apples", "books", "coins", "pencils", "stones", "cards", "stamps", "marbles")
EVENTS = {
    "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?": 1,
    "{name} had {a} {things} and lost {b} of them. How many {things} are left?": -1,
    "There are {a} {things} on the table. {name} puts {b} more there. How many are there in all?": 1,
    "{name} gives {b} of {a} {things} away. How many does {name} keep?": -1,
}
"""Sentence -> whether b is added to a or taken away."""


def word_problems(count: int, examples: int = 2, seed: int = 0) -> list[Prompt]:
    """Always the same for the same arguments; their lengths differ, and `answer` is the number."""
    rng = random.Random(seed)
    prompts = []
    for number in range(count):
        *solved, (question, answer) = [_problem(rng) for _ in range(examples + 1)]
        shown = "".join(f"Question: {asked}\nAnswer: {gold}\n\n" for asked, gold in solved)
        prompts.append(
            Prompt(str(number), f"{shown}Question: {question}\nAnswer:", columns={"answer": answer})
        )
    return prompts


def _problem(rng: random.Random) -> tuple[str, str]:
    (sentence, sign), name, things = rng.choice([*EVENTS.items()]), rng.choice(NAMES), rng.choice(THINGS)
    a, b = rng.randint(10, 60), rng.randint(2, 9)
    return sentence.format(name=name, things=things, a=a, b=b), str(a + sign * b)
