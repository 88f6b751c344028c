"""The checkpoints of a run: each whole or absent, saved in the background, the last good one found again."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from hacrl.runs.checkpoint_format import (
    Checkpoint,
    Contents,
    encode_contents,
    folder_name,
    read_folder,
    read_manifest,
    seal_folder,
)
from hacrl.runs.files import StorageError, explain_os_errors, make_directory, sync_directory

__all__ = ["Checkpoint", "CheckpointStore", "Contents"]

_FOLDER = re.compile(r"step_(\d{8}|[1-9]\d{8,})")


class CheckpointStore:
    """Saves, finds and prunes checkpoints. One process at a time: the run directory's lock sees to it."""

    def __init__(self, directory: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"keep: at least 1 checkpoint has to stay, got {keep}")
        self.damaged: list[str] = []
        """What the last `latest()` had to pass over, and why."""
        self._passed_over: set[Path] = set()
        self._directory = directory
        self._keep = keep
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

        `write` is called at once. It may put files into the folder it gets, each on the disk when it returns,
        and returns the contents to be put beside them. All else is done in the background. -> The folder of
        the checkpoint, once it is there.
        Waits for the save before and raises that one's error. A step that is there intact stays as it is.
        """
        if step < 0:
            raise ValueError(f"step: expected 0 or more, got {step}")
        # A score that is no number cannot be compared: it counts as none.
        score = float(score) if score is not None and math.isfinite(score) else None
        self.wait()
        folder = self._directory / folder_name(step)
        if _is_intact(folder):
            self._pending = self._writer.submit(lambda: folder)
        else:
            contents = self._write_aside(folder, write)
            self._pending = self._writer.submit(self._commit, folder, step, score, contents)
        saved = self._pending
        if not background:
            self.wait()
        return saved

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
        """The newest intact checkpoint, None if nothing was saved; `damaged` tells what was passed over."""
        self.damaged, self._passed_over = [], set()
        for _, folder in sorted(self._folders().items(), reverse=True):
            try:
                return read_folder(folder)
            except StorageError as error:
                if folder.exists():  # else a run that is going on has just dropped it
                    self.damaged.append(str(error))
                    self._passed_over.add(folder)
        if self.damaged:
            raise StorageError(
                "no checkpoint is intact:\n" + "\n".join(f"  {reason}" for reason in self.damaged)
            )
        return None

    def _folders(self) -> dict[int, Path]:
        if not self._directory.exists():
            return {}
        with explain_os_errors(self._directory, "read"):
            matches = [(_FOLDER.fullmatch(path.name), path) for path in self._directory.iterdir()]
        return {int(match[1]): path for match, path in matches if match}

    def _write_aside(self, folder: Path, write: Callable[[Path], Contents]) -> dict[str, bytes]:
        make_directory(self._directory)
        for leftover in self._directory.glob("step_*.tmp-*"):
            _remove(leftover)
        if folder.exists():  # damaged
            _retire(folder)
        aside = _aside(folder)
        with explain_os_errors(aside, "create"):
            aside.mkdir()
        with _removed_on_failure(aside):
            return encode_contents(write(aside))

    def _commit(self, folder: Path, step: int, score: float | None, contents: dict[str, bytes]) -> Path:
        aside = _aside(folder)
        with _removed_on_failure(aside):
            seal_folder(aside, step, score, contents)
            with explain_os_errors(folder, "write"):
                os.rename(aside, folder)
        sync_directory(self._directory)
        self._passed_over.discard(folder)
        self._prune(step)
        return folder

    def _prune(self, newest: int) -> None:
        # Damaged steps are being done again: their folders must not count among the last ones.
        for folder in self._passed_over:
            if folder.exists():
                _retire(folder)
        self._passed_over = set()
        folders = self._folders()
        scores = {step: score for step, path in folders.items() if (score := _score(path)) is not None}
        best = max(scores, key=lambda step: (scores[step], step), default=newest)
        for step in folders.keys() - {newest, best, *sorted(folders)[-self._keep :]}:
            _retire(folders[step])


@contextmanager
def _removed_on_failure(aside: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _is_intact(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        read_folder(folder)
    except StorageError:
        return False
    return True


def _score(folder: Path) -> float | None:
    try:
        return read_manifest(folder).score
    except StorageError:
        return None


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.tmp-{os.getpid()}")


def _retire(folder: Path) -> None:
    """Remove a checkpoint; a kill half-way leaves a leftover, not what looks like a checkpoint."""
    with explain_os_errors(folder, "remove"):
        os.rename(folder, _aside(folder))
    _remove(_aside(folder))


def _remove(leftover: Path) -> None:
    with explain_os_errors(leftover, "remove"):
        shutil.rmtree(leftover)
