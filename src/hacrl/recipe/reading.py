"""Recipes from YAML files: YAML 1.2 scalars, no key twice, mistakes with line and column.

A file may come from anybody. Its size, its depth and what its aliases expand to are limited, and so are its
tags: a short file cannot fill the memory, and nothing in it is more than plain values.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hacrl.recipe.problems import Problem, RecipeError, shown

NULL, BOOL, INT, FLOAT, MERGE, STR, SEQ, MAP = (
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "merge", "str", "seq", "map")
)
SCALARS = {
    NULL: re.compile(r"^(~|null|Null|NULL|)$"),
    BOOL: re.compile(r"^(true|True|TRUE|false|False|FALSE)$"),
    INT: re.compile(r"^[-+]?[0-9]{1,18}$"),
    FLOAT: re.compile(r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"),
    MERGE: re.compile(r"^<<$"),
    STR: re.compile(""),
}
"""What each kind of scalar looks like."""
MOST_BYTES = 2**17
"""Of a file; PyYAML needs seconds for more."""
MOST_CHARACTERS = 8 * MOST_BYTES
"""Of all values, each alias counted as what it stands for."""
MOST_LEVELS = 50
"""Of lists and mappings in each other."""


class _Loader(yaml.SafeLoader):
    """SafeLoader with the numbers of YAML 1.2: `1e-6` is one, `010` is ten, `on` and `12:30` are text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse what SafeLoader silently accepts: a key given twice, a key that is not text."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _error(key_node, f"expected a word as key, got {shown(key)}")
            if key in seen:
                raise _error(key_node, f"the key {shown(key)} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(NULL, SCALARS[NULL], ["~", "n", "N", ""])
_Loader.add_implicit_resolver(BOOL, SCALARS[BOOL], list("tTfF"))
_Loader.add_implicit_resolver(INT, SCALARS[INT], list("-+0123456789"))
_Loader.add_implicit_resolver(FLOAT, SCALARS[FLOAT], list("-+.0123456789"))
_Loader.add_implicit_resolver(MERGE, SCALARS[MERGE], ["<"])
_Loader.add_constructor(INT, lambda loader, node: int(node.value))
_Loader.add_constructor(FLOAT, lambda loader, node: float(node.value))


def parse_yaml(text: str) -> Any:
    """Plain values from YAML. Raises `ValueError` with line and column."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _measure(node, {})
        return loader.construct_object(node, deep=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _error(node: yaml.Node, message: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)


def _measure(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Characters and levels of a value, every alias expanded; refuses too many, and unknown tags.

    An alias is the node it stands for, so that each is `known` after the first time.
    """
    if id(node) in known:
        measured = known[id(node)]
        if measured is None:
            raise _error(node, "a value that contains itself")
        return measured
    known[id(node)] = None
    _check_tag(node)
    inner = [_measure(child, known) for child in _children(node)]
    characters = 1 + (
        len(node.value) if isinstance(node, yaml.ScalarNode) else sum(size for size, _ in inner)
    )
    levels = 1 + max((depth for _, depth in inner), default=0)
    if characters > MOST_CHARACTERS:
        raise _error(node, f"its aliases expand to more than {MOST_CHARACTERS:,} characters")
    if levels > MOST_LEVELS:
        raise _error(node, f"nested too deeply: more than {MOST_LEVELS} levels")
    known[id(node)] = characters, levels
    return characters, levels


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check_tag(node: yaml.Node) -> None:
    """Refuse a tag that no recipe needs, or that does not fit its value."""
    scalar = isinstance(node, yaml.ScalarNode)
    if node.tag not in (SCALARS if scalar else {SEQ} if isinstance(node, yaml.SequenceNode) else {MAP}):
        raise _error(node, f"the type {_short(node.tag)} does not belong here: recipes need no tags")
    if scalar and not SCALARS[node.tag].search(node.value):
        raise _error(node, f"{shown(node.value)} is not of type {_short(node.tag)}")


def _short(tag: str) -> str:
    return shown(tag.replace("tag:yaml.org,2002:", "!!"))


def _read_text(path: Path) -> str:
    """The text of a regular file that is not too large; a pipe or a device might never end."""
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "a pipe, a device or a socket"
        raise ValueError(f"expected a file, but this is {kind}")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES:,} bytes: this cannot be a recipe")
    return content.decode("utf-8-sig")


def read_mapping(path: Path) -> dict[str, Any]:
    """The top-level mapping of a recipe file, or a `RecipeError`."""
    try:
        values = parse_yaml(_read_text(path))
    except OSError as error:
        raise _file_error(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _file_error(path, f"not UTF-8 text (byte {error.start})") from error
    except ValueError as error:
        raise _file_error(path, str(error)) from error
    if values is None:
        raise _file_error(path, "the file is empty; a recipe needs at least `agents` and `task`")
    if not isinstance(values, dict):
        raise _file_error(path, f"expected a mapping of keys, got a {type(values).__name__}")
    return values


def _file_error(path: Path, message: str) -> RecipeError:
    return RecipeError(str(path), [Problem("", message)])
