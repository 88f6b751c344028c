"""Every file of a model's directory, damaged in every way, through the commands that load it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fuzz.contract import Case
from fuzz.damage import kinds_of
from fuzz.grammar import MORE

EVAL = "eval model --task digits --prompts 2 --samples 0 --max-new-tokens 2 --device cpu"
DOCTOR = "doctor {shared}/recipe.yaml agents.0.model=model"
COMMANDS = (DOCTOR, EVAL)
FILES = (
    "ada/config.json",
    "ada/generation_config.json",
    "ada/model.safetensors",
    "ada/tokenizer.json",
    "ada/tokenizer_config.json",
    "sharded/model.safetensors.index.json",
    "sharded/model-00001-of-*.safetensors",
    "adapter/adapter_config.json",
    "adapter/adapter_model.safetensors",
    "chat/chat_template.jinja",
)
"""Plain weights; weights in several files with an index; a peft adapter; a chat template."""
PER_FILE = 28 * MORE
"""Damages of each file."""


def undamaged(shared: Path) -> Iterator[Case]:
    """Every model as it is."""
    for name in sorted({file.partition("/")[0] for file in FILES}):
        for command in COMMANDS:
            argv = tuple(command.format(shared=shared).split())
            prepare = partial(_copied, shared / name)
            yield Case(f"{argv[0]} of {name} works", argv, (), prepare, codes=(0,))


def groups() -> list[str]:
    """Every file."""
    return list(FILES)


def cases(group: str, shared: Path) -> Iterator[Case]:
    """A file with one damage after the other."""
    (path,) = shared.glob(group)
    draw = random.Random(group)
    kinds = draw.sample(list(kinds_of(path)), len(kinds_of(path)))
    for number in range(PER_FILE if len(kinds) > 20 else len(kinds) * MORE):
        what, turn = kinds[number % len(kinds)], number // len(kinds)
        argv = tuple(draw.choice(COMMANDS).format(shared=shared).split())
        yield Case(
            f"{path.parent.name}/{path.name} {what}{f' ({turn})' if turn else ''}: {argv[0]}",
            argv,
            (path.name, "model'", "model:", "agents.0", "agent 'agent'"),
            partial(_damaged, path, what, f"{what} {turn}"),
        )


def _copied(model: Path, here: Path) -> None:
    shutil.copytree(model, here / "model")


def _damaged(path: Path, what: str, seed: str, here: Path) -> None:
    _copied(path.parent, here)
    kinds_of(path)[what](here / "model" / path.name, random.Random(seed))
