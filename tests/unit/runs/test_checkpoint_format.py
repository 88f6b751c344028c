from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.runs.checkpoint_format import _sealed
from hacrl.runs.checkpoints import CheckpointStore
from hacrl.runs.files import StorageError, digest
from helpers_checkpoint import BIG, SMALL, assert_latest, files, names_in, save_steps, writing

FILES = ("manifest.json", *files(0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    store = CheckpointStore(tmp_path, keep=2)
    yield store
    store.close()


# Damage


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("two_steps")
    store = CheckpointStore(directory, keep=2)
    for step in (1, 2):
        store.save(step, writing(step), score=step / 3, background=False)
    return directory


def assert_passes_over(directory: Path, path: Path, damaged: bytes) -> None:
    intact = path.read_bytes()
    path.write_bytes(damaged)
    try:
        store = CheckpointStore(directory, keep=2)
        assert_latest(store, 1)
        assert len(store.damaged) == 1
        assert str(path) in store.damaged[0]
    finally:
        path.write_bytes(intact)


@given(st.sampled_from(FILES), st.integers(0), st.integers(0, 7))
@settings(max_examples=150)
def test_any_flipped_bit_is_found_and_named(two_steps: Path, name: str, position: int, bit: int) -> None:
    path = two_steps / "step_00000002" / name
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 1 << bit
    assert_passes_over(two_steps, path, bytes(data))


@given(st.sampled_from(FILES), st.integers(0))
@settings(max_examples=60)
def test_any_truncation_is_found_and_named(two_steps: Path, name: str, length: int) -> None:
    path = two_steps / "step_00000002" / name
    data = path.read_bytes()
    assert_passes_over(two_steps, path, data[: length % len(data)])


def swap_agents(directory: Path) -> None:
    (directory / "agents/small").rename(directory / "agents/other")
    (directory / "agents/big").rename(directory / "agents/small")
    (directory / "agents/other").rename(directory / "agents/big")


def swap_weights(directory: Path) -> None:
    small, big = directory / SMALL, directory / BIG
    data = small.read_bytes()
    small.write_bytes(big.read_bytes())
    big.write_bytes(data)


def pickle_as_weights(directory: Path) -> None:
    (directory / SMALL).write_bytes(pickle.dumps({"w": 1}))


def link_weights_elsewhere(directory: Path) -> None:
    (directory / SMALL).rename(directory.parent / "elsewhere")
    (directory / SMALL).symlink_to(directory.parent / "elsewhere")


def overwrite_manifest(text: str) -> Callable[[Path], None]:
    def overwrite(directory: Path) -> None:
        (directory / "manifest.json").write_text(text)

    overwrite.__name__ = f"manifest_{text}"
    return overwrite


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (swap_agents, "agents/big/state.json is not in the manifest"),
        (swap_weights, "agents/big/state.safetensors has"),
        (pickle_as_weights, f"{SMALL} has"),
        (link_weights_elsewhere, f"{SMALL} is not a plain file"),
        (lambda directory: (directory / SMALL).unlink(), f"{SMALL} is missing"),
        (lambda directory: (directory / "agents/evil.pkl").touch(), "agents/evil.pkl is not in the manifest"),
        (lambda directory: (directory / "manifest.json").unlink(), "manifest.json: No such file"),
        (overwrite_manifest("[]"), "manifest.json is damaged"),
        (overwrite_manifest("{}"), "manifest.json is damaged"),
        (overwrite_manifest(""), "manifest.json is not the manifest of a checkpoint"),
    ],
)
def test_every_kind_of_damage_is_named_and_passed_over(
    store: CheckpointStore, tmp_path: Path, damage: Callable[[Path], None], named: str
) -> None:
    save_steps(store, 1, 2)
    damage(tmp_path / "step_00000002")
    assert_latest(store, 1)
    assert len(store.damaged) == 1
    assert str(tmp_path / "step_00000002") in store.damaged[0]
    assert named in store.damaged[0]


def test_a_renamed_checkpoint_is_passed_over(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1, 2)
    (tmp_path / "step_00000002").rename(tmp_path / "step_00000009")
    assert_latest(store, 1)
    assert "step_00000009/manifest.json belongs to step 2" in store.damaged[0]


def test_a_format_of_the_future_is_named(store: CheckpointStore, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hacrl.runs.checkpoint_format.FORMAT", 2)
    save_steps(store, 1)
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"manifest\.json has format 2; this version of hacrl reads 1"):
        store.latest()


def test_without_a_good_one_all_reasons_are_given(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1, 2)
    (tmp_path / "step_00000001" / SMALL).unlink()
    (tmp_path / "step_00000002" / "manifest.json").write_text("{")
    with pytest.raises(
        StorageError, match=r"(?s)no checkpoint is intact:.*step_00000002/manifest.*00000001/agents"
    ):
        store.latest()


# What must never be read or written


def test_a_manifest_cannot_lead_outside(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1)
    manifest = tmp_path / "step_00000001" / "manifest.json"
    (tmp_path / "secret.json").write_bytes(b"1")
    entry = {"bytes": 1, "sha256": digest(tmp_path / "secret.json")}
    changed = json.loads(manifest.read_bytes())
    del changed["sha256"]
    changed["files"]["../secret.json"] = entry
    manifest.write_bytes(_sealed(changed))
    with pytest.raises(StorageError, match=r"'\.\./secret\.json' cannot name a checkpoint's file"):
        store.latest()


@pytest.mark.parametrize(
    "name",
    [
        "../x.json",
        "a/../x.json",
        "/etc/x.json",
        "a//x.json",
        "a\\x.json",
        "./x.json",
        ".hidden.json",
        "a/.json",
        "",
        "x",
        "x.pt",
        "x.pkl",
        "x.json/",
        "x.json\n",
        "x y.json",
        "ä.json",
        "manifest.json",
    ],
)
def test_a_bad_name_is_refused_before_anything_is_written(
    store: CheckpointStore, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ValueError, match=r"cannot (name a checkpoint's file|hold JSON)") as caught:
        store.save(1, lambda directory: {name: {}})
    assert repr(name) in str(caught.value)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", {"x": torch.zeros(1)}, "a.json cannot be written as JSON"),
        ("a.json", {"window": [{3: 0.5}]}, "a.json: JSON turns keys that are not strings"),
    ],
)
def test_bad_contents_are_refused_before_anything_is_written(
    store: CheckpointStore, tmp_path: Path, name: str, content: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        store.save(1, lambda directory: {name: content})
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("name", ["agents/a/.metadata", "agents/a/state.pkl", "state.pt", "manifest.json"])
def test_a_file_that_may_be_a_pickle_makes_no_checkpoint(
    store: CheckpointStore, tmp_path: Path, name: str
) -> None:
    def write(directory: Path) -> dict[str, Any]:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(pickle.dumps({"w": 1}))
        return {}

    with pytest.raises(ValueError, match=f"'{name}' cannot name a checkpoint's file"):
        store.save(1, write, background=False)
    assert names_in(tmp_path) == []


def test_bad_settings_and_unknown_names_are_refused(store: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep: at least 1 checkpoint has to stay, got 0"):
        CheckpointStore(tmp_path, keep=0)
    with pytest.raises(ValueError, match="step: expected 0 or more, got -1"):
        store.save(-1, lambda directory: {})
    save_steps(store, 1)
    latest = store.latest()
    assert latest is not None
    with pytest.raises(StorageError, match=r"step_00000001 holds no 'data\.json', only agents/big/state"):
        latest.json("data.json")
    with pytest.raises(StorageError, match=r"step_00000001 holds no 'agents/smal', only agents/big/state"):
        latest.directory("agents/smal")
