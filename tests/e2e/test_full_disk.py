"""A disk that fills up at any write of a run: the file is named, and the run goes on when there is room."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from hacrl.agents.policy import Policy
from hacrl.cli.app import app
from hacrl.runs import files
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader
from helpers_train import make_agent, outcome, recipe

PAGE = 4096
SIZES = 15
"""Of the disk, evenly spaced up to what a run needs."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe whose run writes everything a run can write."""
    directory = tmp_path_factory.mktemp("full")
    agents = {name: make_agent(directory / name, seed, width=16) for seed, name in enumerate(("ann", "bob"))}
    values = recipe(
        agents,
        steps=2,
        prompts_per_step=2,
        evaluation={"prompts": 2, "every": 1},
        checkpoint={"every": 1, "keep": 2},
        logging={"to": ["tensorboard"]},
    )
    (directory / "recipe.yaml").write_text(yaml.safe_dump(values))
    return directory / "recipe.yaml"


@pytest.fixture(scope="module")
def whole(settings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, undisturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    result = train(settings, out)
    assert result.exit_code == 0, result.output
    return out


def train(settings: Path, out: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["train", str(settings), "--out", str(out), *options])


def mount(path: Path, size: int, *options: str) -> None:
    command = ["mount", *options, "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    if options:
        command = ["mount", "-o", f"remount,size={size}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("needs the right to mount a small file system")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a disk of some bytes; called again, it becomes that large."""
    path = tmp_path / "disk"

    def of(size: int) -> Path:
        if path.exists():
            mount(path, size, "again")
        else:
            path.mkdir()
            mount(path, size)
        return path

    yield of
    if path.exists():
        subprocess.run(["umount", str(path)], check=False, capture_output=True)


def pages(directory: Path) -> int:
    return sum(-(-path.stat().st_size // PAGE) for path in directory.rglob("*") if path.is_file())


def assert_continues(settings: Path, out: Path, whole: Path) -> None:
    """The run goes on from its last checkpoint and ends as if nothing had happened."""
    started = (out / "config.json").exists()
    last = max(RunReader(out).checkpoints(), default=0)
    kept = [line for line in RunReader(out).metrics if 0 < line["step"] <= last]
    result = train(settings, out, *(["--resume"] if started else []))
    assert result.exit_code == 0, result.output
    assert kept == RunReader(out).metrics[1 : 1 + len(kept)]  # those steps were not trained again
    assert len(kept) == last
    assert outcome(out) == outcome(whole)
    assert (out / "report.html").is_file()


@pytest.mark.parametrize("part", range(1, SIZES + 1))
def test_a_disk_of_any_size(part: int, settings: Path, whole: Path, disk: Callable[[int], Path]) -> None:
    out = disk(part * pages(whole) // (SIZES + 1) * PAGE) / "run"
    result = train(settings, out)
    assert result.exit_code == 2, (result.output, result.exception)
    error = result.output[result.output.index("error: ") :]
    assert re.match(rf"error: cannot \w+( to)? {out}.*: No space left on device \(free some space", error), (
        error
    )
    assert "Traceback" not in result.output
    disk(64 << 20)
    assert_continues(settings, out, whole)


WRITTEN = (
    "config.json",
    "events.out.tfevents",
    "metrics.jsonl",
    "evaluations/step_000001.json",
    "trajectories/step_000001.jsonl",
    "updates/step_000001.jsonl",
    "trainer.json",
    "manifest.json",
    "README.md",
    "summary.json",
    "report.html",
)
"""In the order in which a run writes them; the agents' weights and tokenizers are written by libraries."""


def test_each_file_in_turn(
    settings: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is stopped at every file that it writes, and resumed to the next."""
    out, real = tmp_path / "run", files._open_to_write
    for name in WRITTEN:

        def full(path: Path, flags: int, name: str = name) -> io.FileIO:
            if name in f"{path.parent.name}/{path.name.removeprefix('.')}":  # written aside
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, flags)

        monkeypatch.setattr(files, "_open_to_write", full)
        result = train(settings, out, *(["--resume"] if (out / "config.json").exists() else []))
        assert result.exit_code == 2, (name, result.output, result.exception)
        assert re.search(rf"error: cannot \w+( to)? {out}/.*{name}.*: No space left on device", result.output)
    monkeypatch.undo()
    assert_continues(settings, out, whole)


def test_final_agents_that_were_written_before_stay_until_the_new_ones_are_complete(
    settings: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))

    def full(self: Policy, directory: Path) -> None:
        Path(directory).mkdir()
        (Path(directory) / "half").touch()
        raise StorageError("no room")

    monkeypatch.setattr(Policy, "save", full)
    assert train(settings, out, "--resume").exit_code == 2
    assert outcome(out) == outcome(whole)
    assert not list((out / "agents").glob(".*"))
