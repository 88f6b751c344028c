"""Recipes from YAML files: YAML 1.2 scalars, no key twice, mistakes with line and column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hacrl.recipe.problems import Problem, RecipeError

NULL, BOOL, INT, FLOAT, MERGE = (
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "merge")
)


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
                raise yaml.constructor.ConstructorError(
                    None, None, f"expected a word as key, got {key!r}", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(NULL, re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(BOOL, re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(INT, re.compile(r"^[-+]?[0-9]{1,18}$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    FLOAT,
    re.compile(r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver(MERGE, re.compile(r"^<<$"), ["<"])
_Loader.add_constructor(INT, lambda loader, node: int(node.value))
_Loader.add_constructor(FLOAT, lambda loader, node: float(node.value))


def parse_yaml(text: str) -> Any:
    """Plain values from YAML. Raises `ValueError` with line and column."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        # Depth first: a value that contains itself is an error here, not endless recursion later.
        return None if node is None else loader.construct_object(node, deep=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The top-level mapping of a recipe file, or a `RecipeError`."""
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
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
