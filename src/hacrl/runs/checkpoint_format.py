"""One checkpoint: a directory of JSON and safetensors files, with a manifest of every file's digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacrl.runs.files import StorageError, digest, explain_os_errors, read_bytes, sync_directory, write_synced
from hacrl.runs.json_files import is_integer, is_number, parse_json

Contents = Mapping[str, Any]
"""Name of a `*.json` file to what it holds."""

FORMAT = 1
MANIFEST = "manifest.json"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_DIRECTORY = re.compile(r"step_(\d{8}|[1-9]\d{8,})")
_NAME = re.compile(rf"(?:{_PART}/)*{_PART}\.(?:json|safetensors)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk, as its manifest describes it."""

    step: int
    path: Path
    score: float | None
    files: Mapping[str, tuple[int, str]]
    """Size in bytes and SHA-256 of every file."""

    def names(self) -> tuple[str, ...]:
        """The names of its contents."""
        return tuple(sorted(self.files))

    def json(self, name: str) -> Any:
        """One JSON content."""
        path = self._file(name)
        try:
            return parse_json(read_bytes(path))
        except ValueError as error:
            raise StorageError(f"{path} is not JSON: {error}") from error

    def directory(self, name: str) -> Path:
        """The directory of an agent's own files, which the agent reads itself."""
        if not any(file.startswith(f"{name}/") for file in self.files):
            raise StorageError(f"{self.path} holds no {name!r}, only {', '.join(self.names())}")
        return self.path / name

    def _file(self, name: str) -> Path:
        if name not in self.files:
            raise StorageError(f"{self.path} holds no {name!r}, only {', '.join(self.names())}")
        return self.path / name


def encode_contents(contents: Contents) -> dict[str, bytes]:
    """Encode the contents before training changes them; bad names and contents are refused."""
    return {_json_name(name): _encode(name, content) for name, content in contents.items()}


def _json_name(name: str) -> str:
    if not name.endswith(".json"):
        raise ValueError(f"{name!r} cannot hold JSON: expected a name that ends in .json")
    return _checked_name(name)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name == MANIFEST:
        raise ValueError(
            f"{name!r} cannot name a checkpoint's file: expected a relative path of letters, digits and "
            f"'_.-', with '/' between directories, ending in .json or .safetensors, other than {MANIFEST}"
        )
    return name


def _encode(name: str, content: Any) -> bytes:
    if not _has_string_keys(content):
        raise TypeError(f"{name}: JSON turns keys that are not strings into strings; convert them yourself")
    try:
        return json.dumps(content, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} cannot be written as JSON: {error}") from error


def _has_string_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_string_keys(item) for key, item in value.items())
    return all(map(_has_string_keys, value)) if isinstance(value, list | tuple) else True


def seal_checkpoint(directory: Path, step: int, score: float | None, contents: Mapping[str, bytes]) -> None:
    """Turn a directory, with files in it or not, into a checkpoint: add the contents, then the manifest.

    Returns when all of it is synced to the disk. Files that were there before must be synced already.
    """
    for name, content in contents.items():
        with explain_os_errors(directory / name, "write"):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write_synced(directory / name, content)
    with explain_os_errors(directory, "read"):
        found = sorted(directory.rglob("*"))
    names = [_checked_name(path.relative_to(directory).as_posix()) for path in found if not path.is_dir()]
    entries = {name: {"bytes": _size(directory / name), "sha256": digest(directory / name)} for name in names}
    manifest = {"format": FORMAT, "step": step, "score": score, "files": entries}
    write_synced(directory / MANIFEST, _sealed(manifest))
    for written in (directory, *(path for path in found if path.is_dir())):
        sync_directory(written)


def read_checkpoint(directory: Path) -> Checkpoint:
    """Check a checkpoint completely; the error names the first file that is not as it was written."""
    if directory.is_symlink():
        raise StorageError(f"{directory} is a link, not a directory")
    checkpoint = read_manifest(directory)
    with explain_os_errors(directory, "read"):
        present = {
            path.relative_to(directory).as_posix()
            for path in directory.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }
    expected = {MANIFEST, *checkpoint.files}
    for name in sorted(expected ^ present):
        raise StorageError(
            f"{directory / name} is {'missing' if name in expected else 'not in the manifest'}"
        )
    for name, (size, sha256) in checkpoint.files.items():
        _check_file(directory / name, size, sha256)
    return checkpoint


def _check_file(path: Path, size: int, sha256: str) -> None:
    with explain_os_errors(path, "read"):
        if path.is_symlink() or not path.is_file():
            raise StorageError(f"{path} is not a plain file")
        if (found := _size(path)) != size:
            raise StorageError(f"{path} has {found} bytes, {size} were written")
        if digest(path) != sha256:
            raise StorageError(f"{path} is damaged: its SHA-256 is not the one in the manifest")


def read_manifest(directory: Path) -> Checkpoint:
    """The checkpoint as its manifest describes it; the other files are not checked."""
    path = directory / MANIFEST
    if path.is_symlink():
        raise StorageError(f"{path} is not a plain file")
    data = read_bytes(path)
    try:
        manifest = parse_json(data)
        if data != _sealed({key: manifest[key] for key in manifest if key != "sha256"}):
            raise StorageError(f"{path} is damaged: its own SHA-256 does not match")
        if manifest["format"] != FORMAT:
            raise StorageError(
                f"{path} has format {manifest['format']}; this version of hacrl reads {FORMAT}"
            )
        step, score = manifest["step"], manifest["score"]
        if not is_integer(step) or not (score is None or is_number(score)):
            raise ValueError("step and score have to be numbers")
        if directory.name != checkpoint_name(step):
            raise StorageError(f"{path} belongs to step {step}, not to {directory.name}")
        files = {
            _checked_name(name): (entry["bytes"], entry["sha256"])
            for name, entry in manifest["files"].items()
        }
        return Checkpoint(step, directory, score, files)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StorageError(f"{path} is not the manifest of a checkpoint: {error}") from error


def checkpoint_name(step: int) -> str:
    """The name of a step's directory; eight digits keep the names in order."""
    return f"step_{step:08d}"


def find_checkpoints(directory: Path) -> dict[int, Path]:
    """The checkpoints in a directory by step, in order, unchecked; none if it does not exist."""
    if not directory.exists():
        return {}
    with explain_os_errors(directory, "read"):
        found = [(_DIRECTORY.fullmatch(path.name), path) for path in directory.iterdir()]
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def _sealed(manifest: Mapping[str, Any]) -> bytes:
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    return json.dumps({**manifest, "sha256": seal}, sort_keys=True, indent=1).encode()


def _size(path: Path) -> int:
    with explain_os_errors(path, "read"):
        return path.stat().st_size
