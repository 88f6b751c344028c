"""Every file of a run's directory, damaged in every way, through the commands that read it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fuzz.contract import Case
from fuzz.damage import kinds_of, of_any_file
from fuzz.grammar import MORE

SIMULATE = "simulate {shared}/recipe.yaml --from run"
RESUME = "train {shared}/recipe.yaml --out run --resume"
AUDIT = "audit run --prompts 2 --samples 4"
EVAL = "eval run/agents/ada --task digits --prompts 2 --samples 0 --max-new-tokens 2 --device cpu"

READERS: dict[str, tuple[str, ...]] = {
    "config.json": ("report run", "trajectories run", "watch run", SIMULATE, RESUME, AUDIT),
    "metrics.jsonl": ("report run", "watch run", SIMULATE, RESUME),
    "summary.json": ("report run", "watch run", RESUME),
    "warnings.jsonl": ("report run", "watch run", RESUME),
    "trajectories/*.jsonl": ("trajectories run", "trajectories run --json", "report run", "watch run"),
    "updates/*.jsonl": ("report run", "watch run"),
    "beliefs/*.jsonl": ("report run", "watch run"),
    "evaluations/*.json": ("report run", RESUME),
    "checkpoints/*/*.json": (RESUME, AUDIT),
    "checkpoints/*/agents/*/*": (RESUME, AUDIT),
    "agents/*/*": (EVAL,),
    "audit.json": ("report run", "watch run"),
    "run.lock": (RESUME,),
    "report.html": ("report run",),
}
"""The files of a run, and the commands that open them."""
FOLDERS = {
    "trajectories": ("trajectories run", "report run", RESUME),
    "updates": ("report run", RESUME),
    "beliefs": ("report run", RESUME),
    "evaluations": ("report run", RESUME),
    "checkpoints": (RESUME, AUDIT),
    "agents": (RESUME, EVAL),
    "agents/ada": (EVAL,),
    "checkpoints/step_00000002": (RESUME,),
    "checkpoints/step_00000002/agents": (RESUME,),
}
REPLACED = ("is missing", "is a pipe", "is a link to itself", "is a link to nothing")
"""What can happen to a directory."""
PER_FILE = 16 * MORE
"""Damages of each kind of file."""
NEIGHBOURS = "neighbours"


def undamaged(shared: Path) -> Iterator[Case]:
    """Every reader of a run as it is."""
    for command in dict.fromkeys(command for commands in READERS.values() for command in commands):
        argv = tuple(command.format(shared=shared).split())
        prepare = partial(_copied, shared)
        yield Case(f"{command} works", argv, (), prepare, codes=(0,), visit=argv[0] == "watch")


def groups() -> list[str]:
    """Every kind of file, the folders, and the runs beside a run."""
    return [*READERS, *(f"{folder}/" for folder in FOLDERS), NEIGHBOURS]


def cases(group: str, shared: Path) -> Iterator[Case]:
    """One file, or another that matches, with one damage after the other."""
    if group == NEIGHBOURS:
        yield from _neighbours(shared)
        return
    if group.endswith("/"):
        folder = group[:-1]
        for what in REPLACED:
            for command in FOLDERS[folder]:
                yield _case(folder, what, command, shared)
        return
    files = sorted(path.relative_to(shared / "run") for path in (shared / "run").glob(group))
    assert files, f"the run has no {group}"
    draw = random.Random(group)
    kinds = draw.sample(list(kinds_of(files[0])), len(kinds_of(files[0])))
    for number in range(PER_FILE):
        what = kinds[number % len(kinds)]
        file = draw.choice([file for file in files if what in kinds_of(file)])
        yield _case(str(file), what, draw.choice(READERS[group]), shared, number // len(kinds))


def _case(file: str, what: str, command: str, shared: Path, turn: int = 0) -> Case:
    argv = tuple(command.format(shared=shared).split())
    folder = {"checkpoints": "checkpoint", "agents": "run/agents/ada"}.get(Path(file).parts[0])
    names = (file, Path(file).name, *([folder] if folder else ()))
    return Case(
        f"{file} {what}{f' ({turn})' if turn else ''}: {argv[0]}",
        argv,
        names,
        partial(_damaged, shared, file, what, f"{what} {turn}"),
        visit=argv[0] == "watch",
    )


def _copied(shared: Path, here: Path) -> None:
    shutil.copytree(shared / "run", here / "run")


def _damaged(shared: Path, file: str, what: str, seed: str, here: Path) -> None:
    _copied(shared, here)
    kinds_of(here / "run" / file)[what](here / "run" / file, random.Random(seed))


def _neighbours(shared: Path) -> Iterator[Case]:
    """A damaged run beside a good one does not matter to the good one."""
    for file in ("config.json", "metrics.jsonl", "summary.json"):
        kinds = kinds_of(Path(file))
        for what in kinds if MORE > 1 else list(kinds)[::4]:
            prepare = partial(_beside, shared, file, what)
            yield Case(f"a neighbour's {file} {what}", ("report", "run"), (), prepare, codes=(0,))
    for what in REPLACED:
        prepare = partial(_beside, shared, "", what)
        yield Case(f"a neighbour {what}", ("report", "run"), (), prepare, codes=(0,))


def _beside(shared: Path, file: str, what: str, here: Path) -> None:
    _copied(shared, here)
    shutil.copytree(shared / "run", here / "other")
    (of_any_file() | kinds_of(Path(file)))[what](here / "other" / file, random.Random(what))
