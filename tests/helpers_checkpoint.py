"""States to save, and victims that save them. Importing this costs torch."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from hacrl.runs.checkpoints import Checkpoint, CheckpointStore
from hacrl.runs.files import make_directory, write_synced

SMALL, BIG = "agents/small/state.safetensors", "agents/big/state.safetensors"


def contents(step: int) -> dict[str, Any]:
    """The JSON that the tests save at a step: different in every file and at every step."""
    return {
        "trainer.json": {"step": step, "position": [step, 2 * step], "loss": 1 / (step + 1)},
        "agents/small/state.json": {"name": "small", "updates": step},
    }


def tensors(step: int) -> dict[str, dict[str, torch.Tensor]]:
    """What agents write at a step, file by file."""
    return {
        SMALL: {"w": torch.arange(6.0) + step, "moment": torch.full((3,), -1.0 * step)},
        BIG: {"w": torch.arange(9.0).double() / (step + 1), "n": torch.tensor(step)},
    }


def files(step: int) -> tuple[str, ...]:
    """The names of all of it."""
    return tuple(sorted([*contents(step), *tensors(step)]))


def writing(step: int) -> Callable[[Path], dict[str, Any]]:
    """Writes as agents do, and leaves the JSON to the store."""

    def write(directory: Path) -> dict[str, Any]:
        for name, content in tensors(step).items():
            make_directory((directory / name).parent)
            write_synced(directory / name, save(content))
        return contents(step)

    return write


def save_steps(store: CheckpointStore, *steps: int) -> None:
    """Save these steps in the foreground."""
    for step in steps:
        store.save(step, writing(step), background=False)


def names_in(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(path.name for path in directory.iterdir())


def assert_latest(store: CheckpointStore, step: int) -> None:
    """The store finds the state of this step, complete."""
    latest = store.latest()
    assert latest is not None
    assert_holds(latest, step)


def assert_holds(checkpoint: Checkpoint, step: int) -> None:
    """The checkpoint is bit for bit the state of this step."""
    assert checkpoint.step == step
    assert checkpoint.names() == files(step)
    for name, content in contents(step).items():
        assert checkpoint.json(name) == content
    for name, expected in tensors(step).items():
        found = load_file(checkpoint.directory(str(Path(name).parent)) / Path(name).name)
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            assert found[key].dtype == tensor.dtype
            assert torch.equal(found[key], tensor)


def save_step_3(directory: Path) -> None:
    """One save as a run makes it, in the background."""
    store = CheckpointStore(directory, keep=1)
    store.save(3, writing(3))
    store.close()


def save_through_kills(directory: Path) -> None:
    """Save step after step, killed at 20 random moments and resumed: nothing acknowledged may be missing."""
    moments = random.Random(5)
    for _ in range(20):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _save_for_ever(directory, writer)
        os.close(writer)
        acknowledged = os.read(reader, 8)
        time.sleep(moments.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while report := os.read(reader, 8):
            acknowledged = report
        os.close(reader)
        store = CheckpointStore(directory, keep=2)
        latest = store.latest()
        assert store.damaged == []
        assert latest is not None
        assert 1 <= int.from_bytes(acknowledged) <= latest.step
        assert_holds(latest, latest.step)


def _save_for_ever(directory: Path, writer: int) -> None:
    try:
        store = CheckpointStore(directory, keep=2)
        latest = store.latest()
        for step in itertools.count(latest.step + 1 if latest else 1):
            store.save(step, writing(step), score=1 / step)
            store.wait()
            os.write(writer, step.to_bytes(8))
    finally:
        os._exit(1)
