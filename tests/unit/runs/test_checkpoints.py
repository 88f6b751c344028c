from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.runs import checkpoints as checkpoint_module
from hacrl.runs.checkpoint_format import read_checkpoint
from hacrl.runs.checkpoints import CheckpointStore
from hacrl.runs.files import StorageError
from helpers_checkpoint import SMALL, assert_holds, assert_latest, files, names_in, save_steps, writing
from helpers_kills import kill_at_every_change, run_alone


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    store = CheckpointStore(tmp_path, keep=2)
    yield store
    store.close()


# Saving and finding


def test_the_newest_state_is_found_bit_for_bit(store: CheckpointStore) -> None:
    assert store.latest() is None
    store.save(0, lambda directory: {}, background=False)
    first = store.latest()
    assert first is not None
    assert first.names() == ()
    for step in (1, 3, 12):
        store.save(step, writing(step), score=step / 7)
        store.wait()
        assert_latest(store, step)
    latest = store.latest()
    assert latest is not None
    assert latest.score == 12 / 7
    assert store.damaged == []


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
@settings(max_examples=30)
def test_json_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    store = CheckpointStore(tmp_path_factory.mktemp("json"), keep=1)
    store.save(1, lambda directory: {"value.json": value}, background=False)
    latest = store.latest()
    assert latest is not None
    assert latest.json("value.json") == value


def test_json_is_a_snapshot_of_the_moment_of_saving(store: CheckpointStore) -> None:
    position = {"row": [1]}
    store.save(1, lambda directory: {"data.json": position})
    position["row"].append(2)
    store.wait()
    latest = store.latest()
    assert latest is not None
    assert latest.json("data.json") == {"row": [1]}


def test_everything_is_on_the_disk_before_the_checkpoint_gets_its_name(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    synced_before_rename: set[int] = set()
    fsync, rename = os.fsync, os.rename

    def note_sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def note_rename(source: Path, target: Path) -> None:
        synced_before_rename.update(synced)
        synced.clear()
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    save_steps(store, 1)
    directory = tmp_path / "step_00000001"
    written = {path: path.stat().st_ino for path in (directory, *directory.rglob("*"))}
    assert len(written) == len(files(1)) + 5  # the manifest, the directory itself and three below it
    assert {path for path, inode in written.items() if inode not in synced_before_rename} == set()
    assert synced == [tmp_path.stat().st_ino]


def test_another_store_sees_the_same_checkpoints(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1, 2)
    other = CheckpointStore(tmp_path, keep=1)
    assert_latest(other, 2)
    save_steps(other, 3)
    assert_latest(store, 3)
    assert names_in(tmp_path) == ["step_00000003"]


def test_an_intact_step_is_not_written_again(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 4)
    before = (tmp_path / "step_00000004" / SMALL).stat().st_ino
    saved = store.save(4, lambda directory: {"trainer.json": "other"}, background=False)
    assert saved.result() == tmp_path / "step_00000004"
    assert (tmp_path / "step_00000004" / SMALL).stat().st_ino == before
    assert_latest(store, 4)


# Which ones stay


@pytest.mark.parametrize(
    ("keep", "scores", "stay"),
    [
        (1, [None, None, None], [2]),
        (2, [None, None, None, None], [2, 3]),
        (2, [0.1, 0.9, 0.3, 0.2, 0.4], [1, 3, 4]),
        (1, [0.1, 0.5, 0.5, 0.2], [2, 3]),
        (1, [-3.0, -1.0, -2.0], [1, 2]),
        (3, [0.1, 0.2], [0, 1]),
        (1, [0.5, float("nan"), float("inf"), 0.1], [0, 3]),
        (1, [None, 0.2, None], [1, 2]),
    ],
)
def test_the_last_ones_and_the_best_stay(
    tmp_path: Path, keep: int, scores: list[float | None], stay: list[int]
) -> None:
    store = CheckpointStore(tmp_path, keep)
    for step, score in enumerate(scores):
        store.save(step, writing(step), score=score, background=False)
    assert names_in(tmp_path) == [f"step_{step:08d}" for step in stay]


def test_damaged_ones_do_not_count_and_go_with_the_next_save(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    save_steps(store, 1, 2, 8, 9)
    for step in (8, 9):
        (tmp_path / f"step_0000000{step}" / SMALL).unlink()
    resumed = CheckpointStore(tmp_path, keep=1)
    assert_latest(resumed, 2)
    assert names_in(tmp_path) == ["step_00000002", "step_00000008", "step_00000009"]
    save_steps(resumed, 3)
    assert names_in(tmp_path) == ["step_00000003"]


def test_a_damaged_step_is_replaced_when_it_is_done_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    save_steps(store, 1, 2)
    (tmp_path / "step_00000002" / "extra").touch()
    assert_latest(store, 1)
    for step in (2, 3):
        save_steps(store, step)
        assert_latest(store, step)
    assert names_in(tmp_path) == ["step_00000002", "step_00000003"]


def test_leftovers_are_ignored_and_removed_by_the_next_save(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1)
    shutil.copytree(tmp_path / "step_00000001", tmp_path / "step_00000002.tmp-123")
    (tmp_path / "notes.txt").touch()
    assert_latest(store, 1)
    assert store.damaged == []
    save_steps(store, 2)
    assert names_in(tmp_path) == ["notes.txt", "step_00000001", "step_00000002"]


# Failing disks


@pytest.mark.usefixtures("small_disk")
def test_a_file_that_does_not_fit_leaves_the_old_state(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1)
    saved = store.save(2, lambda directory: {"first.json": 1, "trainer.json": ["x" * 5000]})
    message = r"cannot write .*trainer\.json: File too large \(free some space"
    with pytest.raises(StorageError, match=message):
        saved.result()  # waiting for the directory raises the error
    with pytest.raises(StorageError, match=message):
        store.wait()
    assert names_in(tmp_path) == ["step_00000001"]
    assert_latest(store, 1)
    save_steps(store, 2)
    assert_latest(store, 2)


def test_a_failed_write_leaves_the_old_state(store: CheckpointStore, tmp_path: Path) -> None:
    save_steps(store, 1)

    def write(directory: Path) -> dict[str, Any]:
        writing(2)(directory)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.save(2, write)
    assert names_in(tmp_path) == ["step_00000001"]
    save_steps(store, 2)
    assert_latest(store, 2)


@pytest.mark.parametrize("function", ["fsync", "rename", "mkdir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_every_failing_call_leaves_the_old_state_and_names_a_file(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    save_steps(store, 1)
    real = getattr(os, function)
    messages: list[str] = []
    for moment in range(100):
        calls = iter(range(moment + 1))

        def fail(*args: Any, calls: Iterator[int] = calls, moment: int = moment, **kwargs: Any) -> Any:
            if next(calls, None) == moment:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, function, fail)
        try:
            save_steps(store, 2)
        except StorageError as error:
            messages.append(str(error))
        monkeypatch.undo()
        if next(calls, None) is not None:
            break  # the save made fewer calls than that: every one has failed once
        latest = store.latest()
        assert latest is not None
        assert_holds(latest, latest.step)
        shutil.rmtree(tmp_path / "step_00000002", ignore_errors=True)
    assert messages
    assert all(str(tmp_path) in message and os.strerror(code) in message for message in messages)


def test_an_error_in_the_background_surfaces_once_at_the_next_call(store: CheckpointStore) -> None:
    store.save(1, lambda directory: {"a/b.json": (directory / "a").touch()})
    with pytest.raises(StorageError, match=r"cannot write .*a/b\.json: File exists"):
        store.save(2, writing(2))
    assert store.latest() is None
    store.save(2, writing(2))
    store.wait()
    assert_latest(store, 2)


def test_saves_in_the_background_follow_one_another(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    order: list[tuple[str, int]] = []
    seal = checkpoint_module.seal_checkpoint

    def write(step: int) -> Callable[[Path], dict[str, Any]]:
        order.append(("write", step))
        return writing(step)

    def slow(directory: Path, step: int, *rest: Any) -> None:
        order.append(("begin", step))
        assert gate.wait(30)
        seal(directory, step, *rest)
        order.append(("end", step))

    monkeypatch.setattr(checkpoint_module, "seal_checkpoint", slow)
    store.save(1, lambda directory: write(1)(directory))
    assert store.latest() is None
    second = threading.Thread(target=store.save, args=(2, lambda directory: write(2)(directory)))
    second.start()
    gate.set()
    second.join()
    store.wait()
    steps = [[(doing, step) for doing in ("write", "begin", "end")] for step in (1, 2)]
    assert order == steps[0] + steps[1]


def test_closing_finishes_the_last_save(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.save(1, writing(1))
    store.close()
    assert names_in(tmp_path) == ["step_00000001"]
    assert_latest(store, 1)


# Kills


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_a_kill_inside_every_change_of_a_save_leaves_the_old_or_the_new_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: None
    )  # hundreds of saves; none has to outlive the test
    prepared = tmp_path / "prepared"
    store = CheckpointStore(prepared, keep=3)
    store.save(1, writing(1), score=0.9, background=False)
    store.save(2, writing(2), score=0.1, background=False)
    shutil.copytree(prepared / "step_00000001", prepared / "step_00000003.tmp-99")
    if damaged:
        save_steps(store, 3)
        (prepared / "step_00000003" / SMALL).write_bytes(b"")
        shutil.copytree(prepared / "step_00000001", prepared / "step_00000003.tmp-99")
    found = []
    victims = kill_at_every_change("helpers_checkpoint:save_step_3", prepared, tmp_path / "victims")
    for victim in victims:
        store = CheckpointStore(victim, keep=1)
        latest = store.latest()
        assert latest is not None
        assert_holds(latest, latest.step)
        for directory in victim.glob("step_????????"):
            assert damaged or read_checkpoint(directory)  # a half-removed one must not look like a checkpoint
        found.append(latest.step)
        save_steps(store, latest.step + 1)
        assert_latest(store, latest.step + 1)
        assert names_in(victim) == ["step_00000001", f"step_{latest.step + 1:08d}"]
    assert len(victims) > 30
    assert found == sorted(found)
    assert set(found) == {2, 3}


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing_acknowledged(tmp_path: Path) -> None:
    run_alone("helpers_checkpoint:save_through_kills", tmp_path / "checkpoints")


def link(manifest: Path) -> None:
    elsewhere = manifest.parent.parent / "manifest.json"
    manifest.rename(elsewhere)
    manifest.symlink_to(elsewhere)


def nest(manifest: Path) -> None:
    manifest.write_bytes(b"[" * 100_000)


def pipe(manifest: Path) -> None:
    manifest.unlink()
    os.mkfifo(manifest)


@pytest.mark.parametrize("damage", [link, nest, pipe])
def test_the_last_good_checkpoint_is_used_when_a_manifest_is_refused(
    store: CheckpointStore, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    save_steps(store, 1, 2)
    damage(tmp_path / "step_00000002" / "manifest.json")
    assert_latest(store, 1)
    assert [str(tmp_path / "step_00000002" / "manifest.json") in text for text in store.damaged] == [True]
    save_steps(store, 3)
    assert_latest(store, 3)
    assert not (tmp_path / "step_00000002").exists()


def test_a_link_in_a_checkpoints_place_is_removed_and_what_it_points_to_stays(
    store: CheckpointStore, tmp_path: Path
) -> None:
    save_steps(store, 1, 2)
    (tmp_path / "step_00000002").rename(tmp_path / "elsewhere")
    (tmp_path / "step_00000002").symlink_to("elsewhere")
    assert_latest(store, 1)
    save_steps(store, 2)
    assert_latest(store, 2)
    assert (tmp_path / "elsewhere" / "manifest.json").is_file()
