"""Validates plain values as a recipe, or lists every mistake in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hacrl.recipe.keys import all_keys, is_tag, known_keys
from hacrl.recipe.problems import Contradiction, Problem, RecipeError, nearest, shown
from hacrl.recipe.recipe import Recipe

EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "model_type": "a mapping of settings",
    "model_attributes_type": "a mapping of settings",
    "string_too_short": "text that is not empty",
}
"""What was expected, by pydantic's type of error; its own words serve for the others."""

PATTERNS = {
    "name": "1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
    "device": "auto, cpu, cuda or cuda:NUMBER",
    "path": "'module:function'",
    "address": "'host:port'",
    "url": "an address like https://host/v1 without user, password, '?' and '#'",
    "key_env": "the name of an environment variable, not the key itself",
}
"""What keys with a pattern expect, in words."""

NOT_SHOWN = ("url", "key_env")
"""Keys where somebody may have written a password or a key."""

MOVED = dict.fromkeys(
    ("exchange.shuffled", "exchange.inverted"),
    "agents that misreport their rewards belong to a comparison: see `faults` of a plan in docs/compare.md",
) | {
    "optimiser.warmup_updates": "set optimiser.warmup_steps, which counts training steps: all methods warm "
    "up over the same part of the run"
}
"""Keys of older versions, and what has replaced them."""


def validated(values: Mapping[str, Any], where: str, from_command_line: Collection[str] = ()) -> Recipe:
    """The recipe, or a `RecipeError` that names every mistake. `where` is usually the file."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        problems = problems_in(error)
    marked = [_marked(problem, from_command_line) for problem in problems]
    raise RecipeError(where, marked)


def problems_in(error: ValidationError, prefix: str = "", known: list[str] | None = None) -> list[Problem]:
    """Every mistake that pydantic found below the key `prefix`, where the keys are the `known` ones."""
    return [problem for details in error.errors() for problem in _problems(details, prefix, known)]


def _problems(details: ErrorDetails, prefix: str, known: list[str] | None) -> Sequence[Problem]:
    kind, location = details["type"], details["loc"]
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, Contradiction):
        return cause.problems
    key = ".".join([*([prefix] if prefix else []), *(_part(part) for part in location if not is_tag(part))])
    name = str(location[-1]) if location else prefix
    if kind == "extra_forbidden":
        return [Problem(key, _unknown(key, known or known_keys(location[:-1])))]
    if kind == "missing":
        return [Problem(key, f"missing{_meaning(key)}")]
    got = "something else" if name in NOT_SHOWN else shown(details["input"])
    if kind == "value_error":
        return [Problem(key, f"{cause}, got {got}")]
    return [Problem(key, f"expected {_expected(details, name)}, got {got}{_nearest_choice(details)}")]


def _part(part: int | str) -> str:
    """A part of a key; unusual ones are quoted and shortened."""
    return str(part) if re.fullmatch(r"[\w -]{1,60}", str(part)) else shown(part)


def _unknown(key: str, known: list[str]) -> str:
    """The nearest key here, else where a key of that name belongs, else all keys there are."""
    if key in MOVED:
        return f"unknown key; {MOVED[key]}"
    name = key.rsplit(".", 1)[-1]
    suggestion = nearest(name, known)
    elsewhere = [path for path in _descriptions() if path.endswith(f".{name}") and path != key]
    if not suggestion and elsewhere:
        suggestion = f"; did you mean {min(elsewhere, key=lambda path: path.count('.'))!r}?"
    return f"unknown key{suggestion}" if suggestion else f"unknown key; the keys here are {', '.join(known)}"


def _meaning(key: str) -> str:
    """What a missing key is for."""
    general = re.sub(r"\.\d+", ".N", key)
    return f": {_descriptions()[general]}" if general in _descriptions() else ""


@functools.cache
def _descriptions() -> dict[str, str | None]:
    """The description of every key; read once, since a long recipe may have thousands of mistakes."""
    return {key.path: key.field.description for key in all_keys()}


def _expected(details: ErrorDetails, name: str) -> str:
    if details["type"] == "string_pattern_mismatch":
        return PATTERNS[name]
    if details["type"] in EXPECTED:
        return EXPECTED[details["type"]]
    words = re.sub(r"^\w+ should (be|have) ", "", details["msg"])
    return f"a number {words}" if re.match("greater|less", words) else words


def _nearest_choice(details: ErrorDetails) -> str:
    if details["type"] != "literal_error":
        return ""
    choices = re.findall(r"'([^']*)'", str(details["ctx"]["expected"]))
    return nearest(str(details["input"]), choices)


def _marked(problem: Problem, from_command_line: Collection[str]) -> Problem:
    """Mark problems of keys that were set on the command line and are not in the file."""
    for key in from_command_line:
        if problem.key == key or problem.key.startswith(f"{key}."):
            return Problem(problem.key, f"{problem.message} (set on the command line)")
    return problem
