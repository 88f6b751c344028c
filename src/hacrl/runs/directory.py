"""A run's directory: where each of its files is, and the lock that keeps a second run out."""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hacrl.runs.files import StorageError, explain_os_errors, make_directory


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run. The constructor only names them; `create` and `resume` also hold the lock."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved recipe. Written first: its presence means that the directory holds a run."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """One line of metrics per step."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The outcome of a finished run."""
        return self.path / "summary.json"

    @property
    def trajectories(self) -> Path:
        """Every verified response, one file per step."""
        return self.path / "trajectories"

    @property
    def updates(self) -> Path:
        """The update log: how every learner used every response, one file per step."""
        return self.path / "updates"

    @property
    def beliefs(self) -> Path:
        """The belief log: who was believed to be good at which prompts, one file per step."""
        return self.path / "beliefs"

    @property
    def evaluations(self) -> Path:
        """Evaluations during the run, one file each; those before and after it are in the summary."""
        return self.path / "evaluations"

    @property
    def pool(self) -> Path:
        """What was taken from a pool, one file per step, and the name this run writes under."""
        return self.path / "pool"

    @property
    def warnings(self) -> Path:
        """One line for every warning."""
        return self.path / "warnings.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints that a resume starts from."""
        return self.path / "checkpoints"

    @property
    def agents(self) -> Path:
        """The final agents, one directory each."""
        return self.path / "agents"

    @property
    def best(self) -> Path:
        """The agents' best weights so far, with `evaluation.keep: best`."""
        return self.path / "best"

    @property
    def replies(self) -> Path:
        """What endpoints have replied, one file for each; kept when a run goes back to a checkpoint."""
        return self.path / "replies"

    @property
    def lock(self) -> Path:
        """Locked while the run is active; names the process that holds it."""
        return self.path / "run.lock"

    def trajectory_file(self, step: int) -> Path:
        """All verified responses of one step."""
        return self.trajectories / f"{step_name(step)}.jsonl"

    def update_file(self, step: int) -> Path:
        """The update log of one step."""
        return self.updates / f"{step_name(step)}.jsonl"

    def pool_file(self, step: int) -> Path:
        """The responses that one step took from the pool."""
        return self.pool / f"{step_name(step)}.jsonl"

    def belief_file(self, step: int) -> Path:
        """The belief log of one step."""
        return self.beliefs / f"{step_name(step)}.jsonl"

    def evaluation_file(self, step: int) -> Path:
        """What an evaluation after one step found, problem by problem."""
        return self.evaluations / f"{step_name(step)}.json"

    @classmethod
    @contextmanager
    def create(cls, path: Path) -> Iterator[RunDirectory]:
        """Lay out the directory of a new run and hold its lock; one that holds a run is refused."""
        run = cls(path)
        make_directory(path)
        with _locked(run.lock):
            if run._is_used():
                raise StorageError(
                    f"{path} already holds a run: continue it with --resume or use another --out"
                )
            run._make_directories()
            yield run

    @classmethod
    @contextmanager
    def resume(cls, path: Path) -> Iterator[RunDirectory]:
        """Hold the lock of a run that was started before."""
        run = cls(path)
        with explain_os_errors(run.config, "read"):
            holds_run = run.config.is_file()
        if not holds_run:
            raise StorageError(
                f"{path} holds no run to resume (no {run.config.name}): check --out or drop --resume"
            )
        with _locked(run.lock):
            run._make_directories()
            yield run

    def _directories(self) -> tuple[Path, ...]:
        return (self.trajectories, self.checkpoints, self.agents)

    def _is_used(self) -> bool:
        with explain_os_errors(self.path, "read"):
            files = any(file.exists() for file in (self.config, self.metrics, self.summary))
            return files or any(path.exists() and any(path.iterdir()) for path in self._directories())

    def _make_directories(self) -> None:
        for path in self._directories():
            make_directory(path)


def step_name(step: int) -> str:
    """What a step's file is called, without its ending; six digits keep the names in order."""
    return f"step_{step:06d}"


def step_files(directory: Path) -> dict[int, Path]:
    """The files of a directory that has one per step, in the order of the steps; none if there is none."""
    with explain_os_errors(directory, "read"):
        found = [(_STEP_FILE.fullmatch(path.name), path) for path in directory.glob("step_*")]
    return dict(sorted((int(match[1]), path) for match, path in found if match))


_STEP_FILE = re.compile(r"step_(\d{6,})\.jsonl?")

_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock. The kernel drops it when the process ends, however it ends."""
    with explain_os_errors(path, "lock"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    _held.add(descriptor)
    try:
        with explain_os_errors(path, "lock"):
            _acquire(path, descriptor)
        yield
    finally:
        if descriptor in _held:  # not in a forked child, which has closed it already
            _held.remove(descriptor)
            os.close(descriptor)


def _acquire(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
        raise StorageError(f"{path.parent} is in use by {holder}: wait for it or use another --out") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _drop_inherited() -> None:
    # A forked worker would share the lock and keep it alive after its parent was killed.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited)
