"""Every option and argument of every command with bad values, found in the commands' own signatures."""

from __future__ import annotations

import inspect
import random
import shutil
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

from typer.models import ArgumentInfo, OptionInfo

from fuzz.contract import Case
from fuzz.grammar import HOSTILE_TEXTS, MORE, number_words, odd_numbers
from fuzz.shared import SPECIAL, special_files
from hacrl.cli.app import app
from hacrl.pool import open_place
from helpers_pool import entry, lines

VALID = {
    "init": "new.yaml",
    "train": "recipe.yaml --out out",
    "launch": "recipe.yaml --cluster 127.0.0.1:1 --out /shared/out",
    "eval": "ada --task digits --prompts 2 --samples 0 --max-new-tokens 2 --device cpu",
    "compare": "recipe.yaml --methods gspo,hacpo --seeds 2 --out out --jobs 1",
    "results": "plan.yaml --out out --page page.md --jobs 1",
    "audit": "run --prompts 2 --samples 4 --checkpoint 2",
    "doctor": "recipe.yaml",
    "demo": "recipe.yaml --out out",
    "simulate": "recipe.yaml",
    "report": "run",
    "watch": "run",
    "trajectories": "run",
    "verify": "rows.jsonl --verifier exact --workers 1",
    "pool": "pool",
    "push": "run --agent ada --repo me/ada",
    "bench": "",
}
"""A command line of each command that works, in a directory with copies of what is shared."""
SLOW = ("train", "launch", "compare", "results", "demo", "audit", "push")
"""They would work for seconds, or need the network: only what they must refuse is tried."""
FREE_TEXTS = {
    *("stop", "system_prompt", "prompt_template", "template_variable", "settings", "overrides"),
    *("init model", "init task", "init method", "demo recipe"),
}
"""Parameters for which any text may be right."""
PER_PARAMETER = 4 * MORE


@dataclass(frozen=True)
class Parameter:
    """An option or an argument of a command."""

    command: str
    name: str
    flag: str | None
    """None: an argument."""
    kind: type
    required: bool
    writes: str
    """`file`, `page` or `directory` if it names what is written, as the check of the option says."""

    @property
    def shown(self) -> tuple[str, ...]:
        """What a message can call it."""
        return (self.flag, self.name) if self.flag else (self.name, self.name.rstrip("s").upper())


@cache
def _parameters() -> dict[str, Parameter]:
    found = {}
    for registered in app.registered_commands:
        callback = registered.callback
        assert callback
        command = registered.name or callback.__name__
        assert command in VALID, f"a new command: add one of its working command lines to {__name__}"
        hints = typing.get_type_hints(callback, include_extras=True)
        for name in inspect.signature(callback).parameters:
            required = inspect.signature(callback).parameters[name].default is inspect.Parameter.empty
            parameter = _parameter(command, name, hints[name], required)
            found[f"{command} {parameter.flag or name}"] = parameter
    return found


def _parameter(command: str, name: str, hint: Any, required: bool) -> Parameter:
    kinds, infos = [], []

    def collect(part: Any) -> None:
        if isinstance(part, OptionInfo | ArgumentInfo):
            infos.append(part)
        elif get_args(part):
            for inner in get_args(part):
                collect(inner)
        elif isinstance(part, type) and part is not type(None):
            kinds.append(part)

    collect(hint)
    (kind,), info = kinds, infos[0]
    declared = [word.split("/")[0] for word in (info.param_decls or ()) if word.startswith("--")]
    flag = declared[0] if declared else f"--{name.replace('_', '-')}"
    check = getattr(info.callback, "__name__", "")
    writes = check.removeprefix("writable_") if check.startswith("writable_") else ""
    option = isinstance(info, OptionInfo)
    return Parameter(command, name, flag if option else None, kind, required, writes)


def undamaged(shared: Path) -> Iterator[Case]:
    """The working command lines themselves."""
    for command, words in VALID.items():
        if command not in (*SLOW, "bench"):
            prepare = partial(_prepare, shared, command)
            argv = (command, *words.split())
            yield Case(f"{command} works", argv, (), prepare, codes=(0,), visit=command == "watch")


def groups() -> list[str]:
    """Every option and argument."""
    return [*_parameters(), "unknown options", "missing arguments"]


def cases(group: str, shared: Path) -> Iterator[Case]:
    """An option with one value after the other."""
    if group == "unknown options":
        yield from _unknown()
    elif group == "missing arguments":
        yield from _missing()
    else:
        yield from _of(_parameters()[group], shared)


def _unknown() -> Iterator[Case]:
    for command in VALID:
        if command != "bench":
            yield Case(f"{command} --nonsense", (command, "--nonsense=[/b]"), ("--nonsense",), refused=True)
    for what, text in HOSTILE_TEXTS.items():
        if text.strip() and text != "--help":
            yield Case(f"the command {what}", (text,), (text[:20], "command", "option"), refused=True)
    yield Case("bench", ("bench", "[/b]", "--x"), ("benchmarks",), refused=True)


def _missing() -> Iterator[Case]:
    for command in dict.fromkeys(found.command for found in _parameters().values() if found.required):
        yield Case(f"{command} alone", (command,), ("Missing",), refused=True)


def _of(parameter: Parameter, shared: Path) -> Iterator[Case]:
    values = [value for value in _values(parameter) if value[2] or parameter.command not in SLOW]
    chosen = random.Random(f"{parameter.command} {parameter.name}")
    for what, word, refused in chosen.sample(values, min(len(values), PER_PARAMETER)):
        argv = _with(parameter, word, _valid(parameter.command))
        place = parameter.flag or f"the argument {parameter.name}"
        yield Case(
            f"{parameter.command}, {place} is {what}",
            (parameter.command, *argv),
            _names(parameter, word),
            partial(_prepare, shared, parameter.command),
            refused=refused,
            visit=parameter.command == "watch",
        )


def _names(parameter: Parameter, word: str) -> tuple[str, ...]:
    """What the option is called, or its value as a message shows it."""
    lines = (text.split("\n")[0][:30] for text in (word, str(Path(word)), word.partition("=")[0]))
    return (*parameter.shown, *(line for line in lines if line), repr(word))


def _values(parameter: Parameter) -> Iterator[tuple[str, str, bool]]:
    """What it is, the word, and whether it must be refused."""
    if parameter.kind is bool:
        yield "a value that it does not take", "=yes", True
    elif parameter.kind in (int, float):
        yield from ((what, word, True) for what, word in number_words().items())
        yield from ((what, word, False) for what, word in odd_numbers().items())
    elif parameter.writes:
        yield from _outputs(parameter)
    elif parameter.kind is Path:
        yield from ((f"a {name}", name, True) for name in SPECIAL)
        yield from ((f"the path {what}", text, True) for what, text in HOSTILE_TEXTS.items())
    else:
        yield from (
            (f"the text {what}", text, _no_text(parameter, what)) for what, text in HOSTILE_TEXTS.items()
        )


def _no_text(parameter: Parameter, what: str) -> bool:
    """Whether no text of the grammar can be right; often nothing is the default."""
    free = {parameter.name, f"{parameter.command} {parameter.name}"} & FREE_TEXTS
    return not free and what not in ("empty", "space")


def _outputs(parameter: Parameter) -> Iterator[tuple[str, str, bool]]:
    for name in ("fifo", "loop", "socket", "fifo/inside", "empty/inside"):
        yield f"a {name}", name, True
    yield ("a file", "binary", True) if parameter.writes == "directory" else ("a folder", "folder", True)
    yield "a name of 300 letters", "x" * 300, True
    for what in ("markup", "escape", "newline", "surrogate", "bidi", "emoji", "percent", "link"):
        yield f"the path {what}", HOSTILE_TEXTS[what].replace("/", "\\"), False


def _valid(command: str) -> list[str]:
    return VALID[command].split()


def _with(parameter: Parameter, word: str, valid: list[str]) -> list[str]:
    """The working command line with one value exchanged or added."""
    if parameter.flag is None:
        if parameter.name == "overrides":
            return [*valid, "--", word]
        return [*valid[1:], "--", word]
    if word.startswith("=") and parameter.kind is bool:
        return [*valid, f"{parameter.flag}{word}"]
    if parameter.flag in valid:
        at = valid.index(parameter.flag)
        valid = valid[:at] + valid[at + 2 :]
    return [*valid, f"{parameter.flag}={word}"]


def _prepare(shared: Path, command: str, here: Path) -> None:
    special_files(here)
    if command == "pool":
        open_place(str(here / "pool")).append("theirs", lines(entry()))
    for name in ("recipe.yaml", "plan.yaml", "rows.jsonl", "ada", "run"):
        if name in VALID[command].split() or (command == "results" and name == "recipe.yaml"):
            copy = shutil.copytree if (shared / name).is_dir() else shutil.copy
            copy(shared / name, here / name)
