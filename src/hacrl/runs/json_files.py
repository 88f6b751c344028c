"""JSON and JSON lines of a run, read with care: a bad line is named by file and number.

JSON that is not UTF-8, is nested too deeply or has NaN in it is refused.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hacrl.printable import printable
from hacrl.runs.files import StorageError, open_regular, read_bytes, write_atomic

T = TypeVar("T")
DEEPEST = 64
"""Levels of nesting; hacrl's own files have fewer than ten."""
LARGEST_INTEGER = 2**63 - 1
LARGEST_NUMBER = 1e300
"""Larger numbers would overflow in sums."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        value = parse_json(read_bytes(path))
    except ValueError as error:
        raise StorageError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StorageError(f"{path} is not a JSON object")
    return value


def parse_json(data: bytes) -> Any:
    """The value in some JSON; `ValueError` says why it is refused."""
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} levels deep") from None
    if data.count(b"[") + data.count(b"{") > DEEPEST:  # else it cannot be nested that deeply
        _check_depth(value, DEEPEST)
    return value


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, left - 1)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a last line without its newline is being written, or was cut by a kill."""
    return [record for _, record in _complete_lines(path)]


def parse_jsonl(path: Path, parse: Callable[[Any], T]) -> Iterator[T]:
    """Read a file that was written whole, line by line; what `parse` refuses is named by file and line."""
    with open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                yield parse(parse_json(line))
            except ValueError as error:
                raise StorageError(f"{path}, line {number}: {error}") from error


def truncate_jsonl(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the lines that `keep` rejects and a last line torn by a kill; the others stay byte for byte."""
    if not os.path.lexists(path):
        return
    kept = []
    for number, (line, record) in enumerate(_complete_lines(path), start=1):
        try:
            kept += [line] if keep(record) else []
        except ValueError as error:
            raise StorageError(f"{path}, line {number}: {error}") from error
    content = b"".join(kept)
    if len(content) != path.stat().st_size:
        write_atomic(path, content)


def _complete_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for row, line in enumerate(io.BytesIO(read_bytes(path)), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            record = parse_json(line)
        except ValueError as error:
            raise StorageError(f"{path}, line {row} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise StorageError(f"{path}, line {row} is not a JSON object: {printable(str(record), 80)!r}")
        yield line, record


def expect(values: Mapping[str, Any], key: str, holds: bool, expected: str) -> None:
    """Raise `ValueError` with what was expected, unless the value `holds`."""
    if not holds:
        got = printable(str(values.get(key)), 80)
        raise ValueError(f"{printable(key, 80)}: expected {expected}, got {got!r}")


def is_integer(value: object) -> bool:
    """Whether a JSON value is a whole number of 64 bits; Python's `bool` is an `int` too."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_INTEGER


def is_number(value: object) -> bool:
    """Whether a JSON value is a number of a usual size: `1e999` is JSON, but infinite."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return False
    return -LARGEST_NUMBER <= value <= LARGEST_NUMBER


def step_of(line: Mapping[str, Any]) -> int:
    """The step of a line of metrics or warnings."""
    expect(line, "step", is_integer(line.get("step")), "a whole number")
    return int(line["step"])
