"""The belief log of a run: `RUN/beliefs/step_000001.jsonl`, who was believed to be good at which prompts.

It has a line for every learner, the step's prompts in columns; `hacrl.training.beliefs` writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hacrl.printable import printable
from hacrl.runs.json_files import expect, is_number, parse_jsonl

BY_AGENT = ("predicted", "deviation", "believed", "share")


@dataclass(frozen=True, slots=True)
class LoggedBelief:
    """What one learner believed about a step's prompts. Columns have an entry for each prompt."""

    learner: str
    prompt_id: list[str]
    x: list[float]
    y: list[float]
    """The two directions in which the learner's features of the prompts vary most."""
    predicted: dict[str, list[float]]
    """By agent: its chance of success, before the step's outcomes were known ..."""
    deviation: dict[str, list[float]]
    """... its standard deviation ..."""
    believed: dict[str, list[float]]
    """... and the chance after they were known."""
    share: dict[str, list[float | None]]
    """By agent: its share of right responses; None where it has none."""


def read_beliefs(path: Path, agents: Collection[str]) -> list[LoggedBelief]:
    """One step's file; a bad line is an error that names file, line and reason."""
    return list(parse_jsonl(path, partial(_parse, agents)))


def _parse(agents: Collection[str], line: object) -> LoggedBelief:
    if not isinstance(line, dict):
        raise ValueError(f"expected a JSON object, got {type(line).__name__}")
    learner, ids = line.get("learner"), line.get("prompt_id")
    expect(line, "learner", learner in agents, "an agent of the run")
    expect(line, "prompt_id", isinstance(ids, list) and all(isinstance(i, str) for i in ids), "strings")
    for axis in ("x", "y"):
        expect(line, axis, _is_column(line.get(axis), len(line["prompt_id"])), "a number for every prompt")
    for key in BY_AGENT:
        _expect_columns(line, key, agents, len(line["prompt_id"]))
    names = ("learner", "prompt_id", "x", "y", *BY_AGENT)
    return LoggedBelief(**{name: line[name] for name in names})


def _expect_columns(line: Mapping[str, Any], key: str, agents: Collection[str], length: int) -> None:
    found = line.get(key)
    expect(line, key, isinstance(found, dict), "a column for every agent")
    for name, column in line[key].items():
        if name not in agents:
            raise ValueError(f"{key}: {printable(name, 80)!r} is not an agent of the run")
        expect(line[key], name, _is_column(column, length, key == "share"), "a number for every prompt")
    if len(line[key]) != len(agents):
        raise ValueError(f"{key}: {len(line[key])} columns, but the run has {len(agents)} agents")


def _is_column(column: object, length: int, gaps: bool = False) -> bool:
    return (
        isinstance(column, list)
        and len(column) == length
        and all(is_number(value) or (gaps and value is None) for value in column)
    )
