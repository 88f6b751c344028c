"""The files that a user writes: a recipe, a plan of experiments, rows of data, damaged in every way."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fuzz.contract import Case
from fuzz.damage import UNREADABLE, kinds_of
from fuzz.grammar import MORE

EVAL = "eval {shared}/ada --task rows.jsonl --samples 0 --max-new-tokens 2 --device cpu"
READERS = {
    "recipe.yaml": ("doctor recipe.yaml", "simulate recipe.yaml"),
    "plan.yaml": (),
    "rows.jsonl": (
        "verify rows.jsonl --verifier exact --workers 1",
        EVAL,
        "doctor {shared}/recipe.yaml task=rows.jsonl",
    ),
}
SLOW_READERS = {
    "recipe.yaml": ("train recipe.yaml", "compare recipe.yaml", "demo recipe.yaml"),
    "plan.yaml": ("results plan.yaml", "results plan.yaml --tune"),
    "rows.jsonl": (),
}
"""Commands that would work for long: they only get files that nothing can be made of."""


def undamaged(shared: Path) -> Iterator[Case]:
    """Every quick reader of a file as it is."""
    for file, commands in READERS.items():
        for command in commands:
            argv = tuple(command.format(shared=shared).split())
            yield Case(f"{command} works", argv, (), partial(shutil.copy, shared / file), codes=(0,))


def groups() -> list[str]:
    """Every file."""
    return list(READERS)


def cases(group: str, shared: Path) -> Iterator[Case]:
    """A file with one damage after the other."""
    draw = random.Random(group)
    for what in kinds_of(Path(group)):
        commands = READERS[group] if what not in UNREADABLE else (*READERS[group], *SLOW_READERS[group])
        for command in draw.sample(commands, min(MORE, len(commands))):
            argv = tuple(command.format(shared=shared).split())
            prepare = partial(_damaged, shared / group, what)
            yield Case(
                f"{group} {what}: {command}", argv, (group, "task:"), prepare, refused=what in UNREADABLE
            )


def _damaged(path: Path, what: str, here: Path) -> None:
    shutil.copy(path, here)
    kinds_of(path)[what](here / path.name, random.Random(what))
