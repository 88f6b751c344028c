"""Whatever the package imports is declared in pyproject.toml, and extras are imported where they are used."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = ("dev", "docs", "bench")
DISTRIBUTIONS = packages_distributions()


class Import(NamedTuple):
    """One module that another one imports."""

    module: str
    lazy: bool
    """In a function, so not before it is called."""


def imports(source: str) -> Iterator[Import]:
    """Those of a module, without what is for type checkers alone."""
    tree = ast.parse(source)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    lazy = {id(n) for function in ast.walk(tree) if isinstance(function, kinds) for n in ast.walk(function)}
    unread = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for n in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            yield from (Import(name.name, id(node) in lazy) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports are absolute"
            yield Import(node.module, id(node) in lazy)
            yield from (Import(f"{node.module}.{name.name}", id(node) in lazy) for name in node.names)


MODULES = {
    ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): list(
        imports(file.read_text())
    )
    for file in sorted((SOURCES / "hacrl").rglob("*.py"))
}


def third_party(found: Iterable[Import]) -> set[str]:
    """The distributions that these imports come from."""
    tops = {name.module.partition(".")[0] for name in found} - sys.stdlib_module_names - {"hacrl"}
    return {canonicalize_name(DISTRIBUTIONS.get(top, [top])[0]) for top in tops}


def installed_with(lines: Iterable[str]) -> set[str]:
    """Declared distributions, and those that they always need."""
    names = {canonicalize_name(Requirement(line).name) for line in lines} - {"hacrl"}
    needed = set()
    for name in names:
        try:
            needs = map(Requirement, requires(name) or ())
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        needed |= {canonicalize_name(need.name) for need in needs if need.marker is None}
    return names | needed


CORE = installed_with(PROJECT["dependencies"])
EXTRAS = installed_with(
    line
    for extra, lines in PROJECT["optional-dependencies"].items()
    if extra not in FOR_DEVELOPERS
    for line in lines
)


def test_every_import_is_declared() -> None:
    for module, found in MODULES.items():
        assert third_party(found) <= CORE | EXTRAS, module


def test_extras_are_imported_where_they_are_used() -> None:
    """In a function, or by a module that is itself imported in functions only."""
    at_once = {name.module for found in MODULES.values() for name in found if not name.lazy}
    assert "hacrl.recipe" in at_once
    for module, found in MODULES.items():
        beyond = third_party(name for name in found if not name.lazy) - CORE
        assert not beyond or module not in at_once, f"{module} imports {', '.join(sorted(beyond))}"


def test_what_is_not_declared_is_noticed() -> None:
    source = "import os\nimport packaging.version\ndef use():\n    from redis import Redis\n"
    found = list(imports(source))
    assert [name.lazy for name in found if name.module in ("packaging.version", "redis")] == [False, True]
    assert third_party(found) == {"packaging", "redis"}
    assert "redis" not in CORE
    assert {"torch", "tokenizers", "pydantic-core"} <= CORE
