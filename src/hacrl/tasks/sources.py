"""Rows from files (JSONL, JSON, CSV, parquet) and from Hugging Face datasets."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hacrl.tasks.rows import NumberedRow
from hacrl.tasks.task import TaskError

SAVED_MARKS = ("dataset_dict.json", "dataset_info.json")
"""`save_to_disk` writes one of these files."""


def read_rows(path: Path) -> Iterator[NumberedRow]:
    """The rows of a file, in order, each with its line (text files) or row number, counted from 1."""
    if not path.is_file():
        raise TaskError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    try:
        yield from READERS[path.suffix](path)
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not UTF-8 text (byte {error.start}): save it as UTF-8") from error


def _jsonl(path: Path) -> Iterator[NumberedRow]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"line {number}", _object(line)


def _object(line: str) -> dict[str, Any] | str:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg} at character {error.pos + 1}"
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        return f"not valid JSON: {error}"
    return value if isinstance(value, dict) else f"a JSON object is expected, not {type(value).__name__}"


def _json(path: Path) -> Iterator[NumberedRow]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise TaskError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # beyond Python's limits, as above
        raise TaskError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise TaskError(f"{path}: a JSON list of objects is expected, not {type(rows).__name__}")
    for number, row in enumerate(rows, start=1):
        is_object = isinstance(row, dict)
        yield f"row {number}", row if is_object else f"a JSON object is expected, not {type(row).__name__}"


def _csv(path: Path) -> Iterator[NumberedRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            for fields in reader:
                where = f"line {reader.line_num}"
                if len(fields) == len(header):
                    yield where, dict(zip(header, fields, strict=True))
                elif fields:
                    yield where, f"{len(fields)} fields, but the header has {len(header)}"
        except csv.Error as error:
            raise TaskError(f"{path}, line {reader.line_num}: not valid CSV: {error}") from error


def _parquet(path: Path) -> Iterator[NumberedRow]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TaskError(f"{path}: parquet files need pyarrow: pip install 'hacrl[data]'") from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise TaskError(f"{path}: not a parquet file: {error}") from error
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row


READERS = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".parquet": _parquet}
"""The reader of each kind of file, by its extension."""


def is_saved(path: Path) -> bool:
    """Whether the directory was written by `save_to_disk`."""
    return any((path / mark).is_file() for mark in SAVED_MARKS)


def read_split(source: str, split: str, subset: str | None = None) -> Iterator[NumberedRow]:
    """The rows of one split of a saved dataset or a hub id, each with its row number, counted from 1."""
    dataset = _load(source, split, subset)
    for number, row in enumerate(dataset, start=1):
        yield f"row {number}", row


def _load(source: str, split: str, subset: str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise TaskError(f"{source}: Hugging Face datasets need: pip install 'hacrl[data]'") from error
    if not is_saved(Path(source)):
        try:
            return datasets.load_dataset(source, subset, split=split)
        except (OSError, ValueError, datasets.exceptions.DatasetNotFoundError) as error:
            raise TaskError(f"{source}: cannot load split {split!r}: {error}") from error
    try:
        saved = datasets.load_from_disk(source)
    except Exception as error:  # the files may be damaged in any way
        raise TaskError(f"{source}: cannot be read as a saved data set: {error}") from error
    if not isinstance(saved, datasets.DatasetDict):
        return saved
    if split not in saved:
        raise TaskError(f"{source}: no split {split!r}; there are: {', '.join(saved)}")
    return saved[split]
