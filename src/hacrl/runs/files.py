"""Atomic writes that survive a kill or a power cut; errors name the file."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SPACE = "free some space or use another directory; what was saved before is intact"
_RIGHTS = "make the directory readable and writable for this user or use another"
_ADVICE = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: _SPACE,
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file: use another directory",
    errno.EEXIST: "a file is in the way: use another path",
    errno.EIO: "the disk or network drive may be failing",
}


class StorageError(Exception):
    """A file cannot be written or read back; the message names it and says what to do."""


@contextmanager
def explain_os_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn an operating system's error into one that names the file and what to do."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = _ADVICE.get(error.errno or 0)
        raise StorageError(f"cannot {doing} {path}: {reason}" + (f" ({advice})" if advice else "")) from error


def make_directory(path: Path) -> None:
    """Create a directory and its parents, and sync them to the disk."""
    with explain_os_errors(path, "create"):
        missing = [part for part in (path, *path.parents) if not part.exists()]
        path.mkdir(parents=True, exist_ok=True)
    for part in missing:
        sync_directory(part.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a new file's name is only safe once its directory is synced."""
    with explain_os_errors(path, "sync"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and sync it to the disk."""
    with explain_os_errors(path, "write"):
        _write_synced(path, data)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: readers find the old content or the new, never a mix, even after a kill."""
    aside = path.with_name(f".{path.name}.tmp")  # a fixed name: the next write replaces what a kill left
    try:
        with explain_os_errors(path, "write"):
            _write_synced(aside, data)
            os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_directory(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Replace an indented JSON file; as `write_atomic`."""
    write_atomic(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    with explain_os_errors(path, "read"):
        content = path.read_bytes()
    try:
        value = json.loads(content)
    except ValueError as error:
        raise StorageError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StorageError(f"{path} is not a JSON object")
    return value


def digest(path: Path) -> str:
    """SHA-256 of a file, as `sha256sum` prints it."""
    with explain_os_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def append_jsonl(path: Path, record: dict[str, Any]) -> None:
    """Add one line; if that fails half-way, the file is cut back to what it was."""
    try:
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise TypeError(f"{path}: a line cannot be written as JSON: {error}") from error
    with explain_os_errors(path, "append to"), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            written = 0
            while written < len(line):
                written += file.write(line[written:])
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):  # report the first error
                file.truncate(before)
            raise
    if before == 0:
        sync_directory(path.parent)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a last line without its newline is being written, or was cut by a kill."""
    return [record for _, record in _complete_lines(path)]


def parse_jsonl(path: Path, parse: Callable[[Any], T]) -> Iterator[T]:
    """Read a file that was written whole, line by line; what `parse` refuses is named by file and line."""
    with explain_os_errors(path, "read"), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield parse(json.loads(line, parse_constant=_refuse_constant))
            except ValueError as error:
                raise StorageError(f"{path}, line {number}: {error}") from error


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def expect(values: Mapping[str, Any], key: str, holds: bool, expected: str) -> None:
    """Raise `ValueError` with what was expected, unless the value `holds`."""
    if not holds:
        raise ValueError(f"{key}: expected {expected}, got {str(values.get(key))[:80]!r}")


def is_integer(value: object) -> bool:
    """Whether a JSON value is a whole number; Python's `bool` is an `int` too."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, float) or is_integer(value)


def truncate_jsonl(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the lines that `keep` rejects and a last line torn by a kill; the others stay byte for byte."""
    if not path.exists():
        return
    kept = b"".join(line for line, record in _complete_lines(path) if keep(record))
    if len(kept) != path.stat().st_size:
        write_atomic(path, kept)


def _complete_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    with explain_os_errors(path, "read"):
        content = path.read_bytes()
    for row, line in enumerate(io.BytesIO(content), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            record = json.loads(line)
        except ValueError as error:
            raise StorageError(f"{path}, line {row} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise StorageError(f"{path}, line {row} is not a JSON object: {line[:80]!r}")
        yield line, record
