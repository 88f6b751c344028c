"""A run's trajectories on disk: `RUN/trajectories/step_000001.jsonl`, read back identically."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from hacrl.runs.files import make_directory, write_atomic
from hacrl.types import FinishReason, Trajectory

_KEYS = tuple(field.name for field in dataclasses.fields(Trajectory))


def step_file(run: Path, step: int) -> Path:
    """Where the trajectories of one step are kept."""
    return run / "trajectories" / f"step_{step:06d}.jsonl"


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
    path = step_file(run, step)
    make_directory(path.parent)
    write_atomic(path, "".join(lines).encode("ascii"))
    return path


def read_step(path: Path) -> Iterator[Trajectory]:
    """The trajectories of one file. A bad line is an error that names file, row and reason."""
    with path.open(encoding="utf-8") as file:
        for row, line in enumerate(file, start=1):
            try:
                yield _parse(json.loads(line, parse_constant=_refuse))
            except ValueError as error:
                raise ValueError(f"{path}, row {row}: {error}") from error


def read_run(run: Path) -> Iterator[Trajectory]:
    """All trajectories of a run, step by step."""
    directory = run / "trajectories"
    if not directory.is_dir():
        raise ValueError(f"{run} holds no shared trajectories: there is no directory {directory}")
    for path in sorted(directory.glob("step_*.jsonl")):
        yield from read_step(path)


def _parse(row: object) -> Trajectory:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}")
    if row.keys() != set(_KEYS):
        missing, unknown = sorted(set(_KEYS) - row.keys()), sorted(row.keys() - set(_KEYS))
        raise ValueError(f"missing keys {missing}, unknown keys {unknown}")
    for key in ("prompt_id", "source", "fingerprint", "text"):
        _expect(row, key, isinstance(row[key], str), "a string")
    for key in ("step", "sample"):
        _expect(row, key, _is_integer(row[key]), "a whole number")
    _expect(row, "reward", row["reward"] is None or _is_number(row["reward"]), "a number or null")
    _expect(row, "finish_reason", row["finish_reason"] in get_args(FinishReason), '"stop" or "length"')
    ids, logps = row["token_ids"], row["token_logps"]
    _expect(row, "token_ids", isinstance(ids, list) and all(map(_is_integer, ids)), "a list of whole numbers")
    _expect(row, "token_logps", isinstance(logps, list) and all(map(_is_number, logps)), "a list of numbers")
    return Trajectory(**{**row, "token_ids": tuple(ids), "token_logps": tuple(logps)})


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_integer(value)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _expect(row: Mapping[str, Any], key: str, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{key}: expected {expected}, got {str(row[key])[:80]!r}")
