"""Atomic writes that survive a kill or a power cut, and careful reads; errors name the file.

What is there may have been damaged or made by somebody else: only regular files are opened, and nothing is
written through a link. `json_files.py` reads JSON.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
    errno.EISDIR: "a directory is in the way: use another path",
    errno.ELOOP: "a symbolic link is in its place, or links lead in a circle",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.EIO: "the disk or network drive may be failing",
}
_QUOTED = re.compile(r"\(os error (\d+)\)")


class StorageError(Exception):
    """A file cannot be written or read back; the message names it and says what to do."""


@contextmanager
def explain_os_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn an operating system's error into one that names the file and what to do."""
    try:
        yield
    except OSError as error:
        raise os_error(path, doing, error) from error


@contextmanager
def explain_library_errors(path: Path, doing: str) -> Iterator[None]:
    """As `explain_os_errors`, for libraries that raise the system's errors in classes of their own."""
    try:
        yield
    except Exception as error:
        if isinstance(error, StorageError) or not (isinstance(error, OSError) or _QUOTED.search(str(error))):
            raise
        raise os_error(path, doing, error) from error


def os_error(path: Path, doing: str, error: Exception) -> StorageError:
    """What an operation on a file failed with, and what to do; libraries in Rust quote the number."""
    quoted = _QUOTED.search(str(error))
    code = getattr(error, "errno", None) or (int(quoted[1]) if quoted else 0)
    reason = os.strerror(code) if code else str(error)
    advice = f" ({_ADVICE[code]})" if code in _ADVICE else ""
    return StorageError(f"cannot {doing} {path}: {reason}{advice}")


def make_directory(path: Path) -> None:
    """Create a directory and its parents, and sync them to the disk."""
    with explain_os_errors(path, "create"):
        missing = [part for part in (path, *path.parents) if not part.exists()]
        path.mkdir(parents=True, exist_ok=True)
    for part in missing:
        sync_directory(part.parent)


def remove_file(path: Path) -> None:
    """Remove a file or a link."""
    with explain_os_errors(path, "remove"):
        path.unlink()


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
    """Replace a regular file: readers find the old content or the new, never a mix, even after a kill."""
    aside = path.with_name(f".{path.name}.tmp")  # a fixed name: the next write replaces what a kill left
    try:
        with explain_os_errors(path, "write"):
            if path.exists() and not path.is_file():
                raise StorageError(f"{path} is not a regular file and is not replaced: use another path")
            aside.unlink(missing_ok=True)  # never written through: it may be a link to somebody's file
            _write_synced(aside, data)
            os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_directory(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    with _open_to_write(path, os.O_WRONLY | os.O_TRUNC) as file:
        _write_all(file, data)


def _write_all(file: io.FileIO, data: bytes) -> None:
    """Write and sync to the disk."""
    written = 0
    while written < len(data):
        written += file.write(data[written : written + (1 << 30)])
    os.fsync(file.fileno())


def _open_to_write(path: Path, flags: int) -> io.FileIO:
    """A file, made if there is none; links and pipes in its place are refused."""
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path} is not a regular file")
    return open(descriptor, "ab" if flags & os.O_APPEND else "wb", buffering=0)


@contextmanager
def replaced_directory(path: Path) -> Iterator[Path]:
    """A path to fill with a directory; what is at `path` stays until the new one is complete."""
    aside = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with explain_os_errors(path, "write"):
            yield aside
            if path.exists():
                shutil.rmtree(path)
            aside.rename(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)  # room for the next attempt
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace an indented JSON file; as `write_atomic`."""
    write_atomic(path, (json.dumps(value, indent=2) + "\n").encode())


@contextmanager
def open_regular(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file to read it. Pipes, devices and directories are refused, without waiting for a writer."""
    with explain_os_errors(path, "read"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StorageError(f"{path} is not a regular file")
        with os.fdopen(descriptor, "rb") as file:
            yield file


def file_status(path: Path) -> os.stat_result:
    """Size and times of a file."""
    with explain_os_errors(path, "read"):
        return path.stat()


def read_bytes(path: Path) -> bytes:
    """All of a regular file."""
    with open_regular(path) as file:
        return file.read()


def digest(path: Path) -> str:
    """SHA-256 of a regular file, as `sha256sum` prints it."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def append_jsonl(path: Path, record: dict[str, Any]) -> None:
    """Add one line, as `append_bytes`."""
    try:
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise TypeError(f"{path}: a line cannot be written as JSON: {error}") from error
    append_bytes(path, line)


def append_bytes(path: Path, data: bytes) -> None:
    """Add to the end of a file; if that fails half-way, the file is cut back to what it was."""
    with explain_os_errors(path, "append to"), _open_to_write(path, os.O_WRONLY | os.O_APPEND) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            _write_all(file, data)
        except BaseException:
            with suppress(OSError):  # report the first error
                file.truncate(before)
            raise
    if before == 0:
        sync_directory(path.parent)
