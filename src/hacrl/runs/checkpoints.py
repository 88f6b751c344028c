"""The checkpoints of a run: written atomically, in the background; resume finds the newest intact one."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hacrl.runs.checkpoint_format import (
    Checkpoint,
    Contents,
    checkpoint_name,
    encode_contents,
    find_checkpoints,
    read_checkpoint,
    read_manifest,
    seal_checkpoint,
)
from hacrl.runs.files import StorageError, explain_os_errors, make_directory, sync_directory

__all__ = ["Checkpoint", "CheckpointStore", "Contents", "SaveCost"]


@dataclass(frozen=True, slots=True)
class SaveCost:
    """What one checkpoint took."""

    seconds: float
    """To write all of it, in the background or not."""
    size: int
    """Bytes."""


class CheckpointStore:
    """Saves, finds and prunes checkpoints. The run directory's lock keeps other processes out."""

    def __init__(self, directory: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"keep: at least 1 checkpoint has to stay, got {keep}")
        self.damaged: list[str] = []
        """The checkpoints that the last `latest()` skipped, and why."""
        self._skipped: set[Path] = set()
        self._directory = directory
        self._keep = keep
        self._cost: SaveCost | None = None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[Path] | None = None

    def save(
        self,
        step: int,
        write: Callable[[Path], Contents],
        *,
        score: float | None = None,
        background: bool = True,
    ) -> Future[Path]:
        """Write a checkpoint, then drop old ones: the last `keep` and the one with the highest score stay.

        `write` is called immediately: it may put files into the directory it gets, synced to the disk, and
        returns the contents to add. The rest is done in the background, after which the future holds the
        checkpoint's directory. Waits for the previous save and raises its error. A step whose
        checkpoint exists and is intact is not written again.
        """
        if step < 0:
            raise ValueError(f"step: expected 0 or more, got {step}")
        # NaN cannot be compared: it counts as no score.
        score = float(score) if score is not None and math.isfinite(score) else None
        self.wait()
        path = self._directory / checkpoint_name(step)
        if _is_intact(path):
            self._pending = self._writer.submit(lambda: path)
        else:
            self._cost, started = None, time.perf_counter()
            contents = self._write_aside(path, write)
            self._pending = self._writer.submit(self._commit, path, step, score, contents, started)
        saved = self._pending
        if not background:
            self.wait()
        return saved

    @property
    def cost(self) -> SaveCost | None:
        """Of the last checkpoint; None before the first one, and while one is being written."""
        return self._cost

    def wait(self) -> None:
        """Wait for a save in the background and raise its error if it failed."""
        if self._pending is not None:
            error = self._pending.exception()
            self._pending = None
            if error is not None:
                raise error

    def close(self) -> None:
        """Finish the last save; none can follow."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def latest(self) -> Checkpoint | None:
        """The newest intact checkpoint, None if nothing was saved; `damaged` says what was skipped."""
        self.damaged, self._skipped = [], set()
        for path in reversed(find_checkpoints(self._directory).values()):
            try:
                return read_checkpoint(path)
            except StorageError as error:
                if path.exists():  # else the run, still training, has just pruned it
                    self.damaged.append(str(error))
                    self._skipped.add(path)
        if self.damaged:
            raise StorageError(
                "no checkpoint is intact:\n" + "\n".join(f"  {reason}" for reason in self.damaged)
            )
        return None

    def _write_aside(self, path: Path, write: Callable[[Path], Contents]) -> dict[str, bytes]:
        make_directory(self._directory)
        for leftover in self._directory.glob("step_*.tmp-*"):
            _remove(leftover)
        if path.exists():  # damaged
            _retire(path)
        aside = _aside(path)
        with explain_os_errors(aside, "create"):
            aside.mkdir()
        with _removed_on_failure(aside):
            return encode_contents(write(aside))

    def _commit(
        self, path: Path, step: int, score: float | None, contents: dict[str, bytes], started: float
    ) -> Path:
        aside = _aside(path)
        with _removed_on_failure(aside):
            seal_checkpoint(aside, step, score, contents)
            with explain_os_errors(path, "write"):
                os.rename(aside, path)
        sync_directory(self._directory)
        self._skipped.discard(path)
        self._prune(step)
        size = sum(size for size, _ in read_manifest(path).files.values())
        self._cost = SaveCost(time.perf_counter() - started, size)
        return path

    def _prune(self, newest: int) -> None:
        # Steps with a damaged checkpoint are trained again: it must not count among the last ones.
        for path in self._skipped:
            if path.exists():
                _retire(path)
        self._skipped = set()
        found = find_checkpoints(self._directory)
        scores = {step: score for step, path in found.items() if (score := _score(path)) is not None}
        best = max(scores, key=lambda step: (scores[step], step), default=newest)
        for step in found.keys() - {newest, best, *sorted(found)[-self._keep :]}:
            _retire(found[step])


@contextmanager
def _removed_on_failure(aside: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _is_intact(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        read_checkpoint(path)
    except StorageError:
        return False
    return True


def _score(path: Path) -> float | None:
    try:
        return read_manifest(path).score
    except StorageError:
        return None


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp-{os.getpid()}")


def _retire(path: Path) -> None:
    """Remove a checkpoint; it is renamed first, so that a kill leaves no partial checkpoint."""
    with explain_os_errors(path, "remove"):
        os.rename(path, _aside(path))
    _remove(_aside(path))


def _remove(leftover: Path) -> None:
    with explain_os_errors(leftover, "remove"):
        if leftover.is_symlink() or not leftover.is_dir():
            leftover.unlink()  # somebody's link or file in a checkpoint's place: what it points to stays
        else:
            shutil.rmtree(leftover)
