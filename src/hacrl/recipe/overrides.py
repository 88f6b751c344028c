"""Settings from the command line: `optimiser.learning_rate=3e-4`, `agents.small.device=cpu`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.own_code import is_installed
from hacrl.recipe.fields import named
from hacrl.recipe.problems import Problem, RecipeError, nearest, shown
from hacrl.recipe.reading import parse_yaml, read_mapping
from hacrl.recipe.recipe import Recipe
from hacrl.recipe.validation import validated
from hacrl.runs.reader import RunReader

MAY_BE_A_NAME = ("method", "task", "runtime")


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a YAML file with `key=value` overrides, or a `RecipeError` that lists every mistake."""
    return parse_recipe(read_mapping(Path(path)), overrides, where=str(path))


def saved_recipe(run: RunReader) -> Recipe:
    """The recipe that a run was started with, from its `config.json`.

    A run may come from anybody: modules that it names are not taken from the working directory.
    """
    values, where = run.recipe, str(run.directory.config)
    problems = [
        Problem(key, f"{path!r} is not installed here. If you trust it, set PYTHONPATH to its directory")
        for key, path in _named_modules(values)
        if not is_installed(path.partition(":")[0])
    ]
    if problems:
        raise RecipeError(where, problems)
    return parse_recipe(values, where=where)


def _named_modules(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and path of the methods and reward functions that are given as `module:name`."""
    method = named(values.get("method"))
    if isinstance(method, Mapping) and ":" in str(method.get("name")):
        yield "method.name", str(method["name"])
    reward = values.get("reward")
    functions = reward.get("functions") if isinstance(reward, Mapping) else None
    for position, function in enumerate(functions if isinstance(functions, list) else ()):
        if isinstance(function, Mapping):
            yield f"reward.functions.{position}.path", str(function.get("path"))


def parse_recipe(values: Mapping[str, Any], overrides: Sequence[str] = (), where: str = "recipe") -> Recipe:
    """The recipe in plain values, as `load_recipe`; `where` is what error messages call it."""
    problems, keys = [], []
    for override in overrides:
        try:
            parts, value = _parsed(override, values)
            values = _with(values, parts, value)
        except ValueError as error:
            problems.append(Problem("", f"{override!r} on the command line: {error}"))
        else:
            keys.append(".".join(parts))
    if problems:
        raise RecipeError(where, problems)
    return validated(values, where, keys)


def _parsed(override: str, values: Mapping[str, Any]) -> tuple[list[str], Any]:
    """The parts of the key, an agent's name replaced by its number, and the value."""
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ValueError("expected key=value, the key in dotted form like optimiser.learning_rate")
    return _with_agent_number(key, values.get("agents")).split("."), parse_yaml(text)


def _with_agent_number(key: str, agents: object) -> str:
    """`agents.small.model` -> `agents.0.model`. Names may contain dots: the longest that fits counts."""
    section, _, rest = key.partition(".")
    if section != "agents" or not rest or not isinstance(agents, list):
        return key
    names = [str(agent.get("name")) if isinstance(agent, Mapping) else "" for agent in agents]
    fitting = [name for name in names if name and f"{rest}.".startswith(f"{name}.")]
    if fitting:
        name = max(fitting, key=len)
        return f"agents.{names.index(name)}{rest[len(name) :]}"
    first = rest.split(".")[0]
    if not first.isdecimal():
        raise ValueError(
            f"no agent is called {first!r}{nearest(first, names)} (there are {', '.join(names)})"
        )
    return key


def _with(value: Any, parts: Sequence[str], new: Any, path: str = "") -> Any:
    """A copy of nested mappings and lists with one entry replaced; missing mappings are made."""
    if not parts:
        return new
    head, *rest = parts
    inner = f"{path}.{head}" if path else head
    if path in MAY_BE_A_NAME:
        value = named(value)
    if isinstance(value, list):
        if not head.isdecimal() or int(head) >= len(value):
            raise ValueError(f"{path} has the entries 0 to {len(value) - 1}, but no {head!r}")
        index = int(head)
        return [*value[:index], _with(value[index], rest, new, inner), *value[index + 1 :]]
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{path} is {shown(value)}, which has no keys")
    below = value or {}
    return {**below, head: _with(below.get(head), rest, new, inner)}
