"""Rows from Hugging Face datasets: a directory written by `save_to_disk`, or a hub id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hacrl.tasks.rows import NumberedRow
from hacrl.tasks.task import TaskError

SAVED_MARKS = ("dataset_dict.json", "dataset_info.json")
"""Files of which `save_to_disk` writes one."""


def is_saved(path: Path) -> bool:
    """Whether `save_to_disk` wrote the directory."""
    return any((path / mark).is_file() for mark in SAVED_MARKS)


def read_split(source: str, split: str, subset: str | None = None) -> Iterator[NumberedRow]:
    """The rows of one split, each with its number, counted from 1."""
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
    saved = datasets.load_from_disk(source)
    if not isinstance(saved, datasets.DatasetDict):
        return saved
    if split not in saved:
        raise TaskError(f"{source}: no split {split!r}; there are: {', '.join(saved)}")
    return saved[split]
