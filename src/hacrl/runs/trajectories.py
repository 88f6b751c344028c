"""A run's trajectories on disk: `RUN/trajectories/step_000001.jsonl`, read back identically."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import get_args

from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import make_directory, write_atomic
from hacrl.runs.json_files import expect, is_integer, is_number, parse_jsonl
from hacrl.types import FinishReason, Trajectory

_FIELDS = dataclasses.fields(Trajectory)
_KEYS = tuple(field.name for field in _FIELDS)
_REQUIRED = {field.name for field in _FIELDS if field.default is dataclasses.MISSING}
"""Older runs do not have the others."""


def to_json(trajectory: Trajectory) -> str:
    """One line of a step file, without the line break."""
    return json.dumps({key: getattr(trajectory, key) for key in _KEYS}, allow_nan=False)


def write_step(run: Path, step: int, trajectories: Iterable[Trajectory]) -> Path:
    """Write all of a step's trajectories at once: the file is there completely or not at all.

    A resumed run that repeats a step replaces the file.
    """
    lines = []
    for trajectory in trajectories:
        if trajectory.step != step:
            raise ValueError(f"{trajectory.id} does not belong to step {step}")
        lines.append(to_json(trajectory) + "\n")
    path = RunDirectory(run).trajectory_file(step)
    make_directory(path.parent)
    write_atomic(path, "".join(lines).encode("ascii"))
    return path


def read_step(path: Path, agents: Collection[str] | None = None) -> Iterator[Trajectory]:
    """The trajectories of one file; with `agents`, only they may have drawn them.

    A bad line is an error that names file, line and reason.
    """
    return parse_jsonl(path, partial(_parse, agents))


def _parse(agents: Collection[str] | None, row: object) -> Trajectory:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}")
    missing, unknown = sorted(_REQUIRED - row.keys()), sorted(row.keys() - set(_KEYS))
    if missing or unknown:
        raise ValueError(f"missing keys {missing}, unknown keys {unknown}")
    for key in ("prompt_id", "source", "fingerprint", "text"):
        expect(row, key, isinstance(row[key], str), "a string")
    expect(row, "source", agents is None or row["source"] in agents, "an agent of the run")
    for key in ("step", "sample"):
        expect(row, key, is_integer(row[key]) and row[key] >= 0, "a whole number from 0")
    expect(row, "reward", row["reward"] is None or is_number(row["reward"]), "a number or null")
    expect(row, "stop", isinstance(row.get("stop", ""), str | None), "a string or null")
    expect(row, "ending", isinstance(row.get("ending", ""), str), "a string")
    expect(row, "finish_reason", row["finish_reason"] in get_args(FinishReason), '"stop" or "length"')
    ids, logps = row["token_ids"], row["token_logps"]
    expect(row, "token_ids", _is_list_of(ids, _is_token), "a list of tokens' numbers")
    expect(row, "token_logps", _is_list_of(logps, is_number), "a list of numbers")
    expect(row, "tokens", _is_token(row.get("tokens", 0)), "a whole number from 0")
    if ids and len(ids) != len(logps):
        raise ValueError(f"token_logps: {len(logps)} entries, but token_ids has {len(ids)}")
    return Trajectory(**{**row, "token_ids": tuple(ids), "token_logps": tuple(logps)})


def _is_list_of(column: object, holds: Callable[[object], bool]) -> bool:
    return isinstance(column, list) and all(map(holds, column))


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
