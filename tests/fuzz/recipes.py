"""Every key of a recipe with bad values, in the file and on the command line; every way to break the file."""

from __future__ import annotations

import copy
import json
import random
import types
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fuzz.contract import Case
from fuzz.grammar import MORE, Value, yaml_values
from fuzz.shared import base_recipe
from hacrl.recipe.fields import Settings
from hacrl.recipe.keys import all_keys
from hacrl.recipe.method import MethodSettings, registered_methods

HOLE = "HOLE"
WRONG_KINDS = 2 * MORE
HOSTILE = 1 * MORE
"""Values drawn for each key: of a kind that it does not take, and of all others."""
READERS = ("doctor", "doctor", "train", "simulate", "compare")
"""All of them read a recipe first; the ones that train only get recipes that must be refused."""
MAY_BE_A_NAME = ("task", "method", "runtime", "agents.0.engine", "evaluation.tasks", "exchange.pool")

SIMPLE = {
    str: {"text"},
    bool: {"boolean"},
    int: {"integer"},
    float: {"integer", "number"},
    type(None): {"null"},
}
CONTAINERS = {Literal: "text", tuple: "list", dict: "mapping"}


@cache
def _keys() -> dict[str, tuple[FieldInfo, str]]:
    """Dotted key -> its field and the method it belongs to; `commons: method.passes` for a method's own."""
    found = {key.path.replace(".N", ".0"): (key.field, "") for key in all_keys() if not _of_method(key.path)}
    for name, method in registered_methods().items():
        own = {f"{name}: method.{key}": (field, name) for key, field in method.model_fields.items()}
        found |= {key: own[key] for key in own if key.rsplit(".", 1)[-1] not in MethodSettings.model_fields}
    return found


def _of_method(path: str) -> bool:
    return path.startswith("method.")


def groups() -> list[str]:
    """Every key of a recipe."""
    return list(_keys())


def cases(key: str, shared: Path) -> Iterator[Case]:
    """A key with values of every wrong kind, and with some of the hostile ones."""
    field, method = _keys()[key]
    path = key.rsplit(" ", 1)[-1]
    chosen = random.Random(key)
    kinds = accepted(field.annotation)
    values = yaml_values()
    wrong = [value for value in values[:6] if value.kind not in kinds]
    chosen.shuffle(wrong)
    for number, value in enumerate([*wrong[:WRONG_KINDS], *chosen.sample(values[6:], HOSTILE)]):
        refused = path not in MAY_BE_A_NAME and certainly_wrong(value, field.annotation)
        command = chosen.choice(READERS) if refused else "doctor"
        what = f"{key} is {value.what}"
        base = base_recipe(shared)
        if method:
            base["method"] = {"name": method}
        base |= {"reward": {"functions": [{"path": "helpers:reward"}]}} if path.startswith("reward.f") else {}
        if path.startswith("evaluation.tasks."):
            base["evaluation"]["tasks"] = ["sort"]
        if number % 2:
            yield _in_file(what, command, base, path, value, refused)
        else:
            yield _on_command_line(what, command, base, path, value, refused)


def accepted(annotation: Any) -> set[str]:
    """The kinds of values that a type takes; of a type that is not known here, all of them."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return {"mapping"}
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    if origin in CONTAINERS:
        return {CONTAINERS[origin]}
    if origin is Annotated:
        return accepted(parts[0])
    if origin in (types.UnionType, Union):
        return set().union(*(accepted(part) for part in parts))
    return {"text", "number", "integer", "boolean", "null", "list", "mapping"}


def certainly_wrong(value: Value, annotation: Any) -> bool:
    return value.kind in ("broken", "overflow", "deep") or value.kind not in accepted(annotation)


def _in_file(what: str, command: str, base: Any, path: str, value: Value, refused: bool) -> Case:
    """The recipe has the value where the key is. YAML that cannot be read is named by its line."""
    text = json.dumps(_with(base, path.split("."), HOLE)).replace(f'"{HOLE}"', value.yaml)
    unread = {"broken": ("line 1",), "overflow": ("line 1",), "deep": ("too deep",)}.get(value.kind, ())
    names = (*_names(path), *unread)
    prepare = partial(_write, text)
    return Case(f"{what}, in the file", (command, "recipe.yaml"), names, prepare, refused=refused)


def _on_command_line(what: str, command: str, base: Any, path: str, value: Value, refused: bool) -> Case:
    word = f"{path}={value.yaml}".replace("\0", "\\0")  # no process can be given a NUL
    argv, prepare = (command, "recipe.yaml", word), partial(_write, json.dumps(base))
    return Case(f"{what}, on the command line", argv, _names(path), prepare, refused=refused)


def _names(path: str) -> tuple[str, ...]:
    """The key, or the entry or section that it is in."""
    section = path.rpartition(".")[0]
    return tuple(name for name in (path, section, section.removesuffix(".0")) if name)


def _write(text: str, here: Path) -> None:
    (here / "recipe.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")


def _with(values: Any, parts: list[str], new: Any) -> Any:
    """A copy with one entry replaced; missing mappings and lists are made."""
    if not parts:
        return new
    head, *rest = parts
    if head.isdecimal():
        items = list(values or [{}])
        items[int(head)] = _with(items[int(head)], rest, new)
        return items
    below = copy.copy(values) if isinstance(values, dict) else {}
    below[head] = _with(below.get(head), rest, new)
    return below
