"""SECURITY.md: every promise names tests, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROMISES = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| promise")]


def test_there_are_promises() -> None:
    assert len(PROMISES) >= 15


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_names_tests_that_exist(promise: str) -> None:
    _, text, tests, _ = promise.split("|")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert named, f"no test: {text}"
    assert len(named) == tests.count("`") / 2, f"not the name of a test: {tests}"
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
