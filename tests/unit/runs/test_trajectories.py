from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader
from hacrl.runs.trajectories import read_step, write_step
from helpers_sharing import HARD_TEXTS, trajectory


def test_trajectories_read_back_identically(tmp_path: Path) -> None:
    written = [trajectory(sample=n, text=text, reward=None) for n, text in enumerate(HARD_TEXTS)]
    written += [trajectory("b", reward=0.1 + 0.2, finish_reason="length", prompt_id="p/\u2028\n\ud800")]
    written += [trajectory("c", stop="\n", ending="\n\n")]
    path = write_step(tmp_path, 1, written)
    assert path == tmp_path / "trajectories" / "step_000001.jsonl"
    assert list(read_step(path)) == written
    assert not list(path.parent.glob("*.partial"))


def test_a_line_of_an_older_run_has_no_stop_string(tmp_path: Path) -> None:
    path = tmp_path / "step_000001.jsonl"
    older = {key: value for key, value in asdict(trajectory()).items() if key not in ("stop", "ending")}
    path.write_text(json.dumps(older) + "\n")
    assert list(read_step(path)) == [trajectory()]


def test_a_run_is_read_in_the_order_of_its_steps(tmp_path: Path) -> None:
    for step in (10, 2, 1):
        write_step(tmp_path, step, [trajectory(step=step)])
    assert [found.step for found in RunReader(tmp_path).trajectories()] == [1, 2, 10]


def test_a_repeated_step_replaces_its_file(tmp_path: Path) -> None:
    write_step(tmp_path, 1, [trajectory(), trajectory(sample=1)])
    write_step(tmp_path, 1, [trajectory()])
    assert list(RunReader(tmp_path).trajectories()) == [trajectory()]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"step": 2}, "2/p0/a/0 does not belong to step 1"),
        ({"reward": float("nan")}, "JSON"),
    ],
)
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, bad: dict[str, Any], message: str) -> None:
    write_step(tmp_path, 1, [trajectory()])
    with pytest.raises(ValueError, match=message):
        write_step(tmp_path, 1, [trajectory(sample=1), trajectory(**bad)])
    assert list(RunReader(tmp_path).trajectories()) == [trajectory()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "1"}, "reward: expected a number or null, got '1'"),
        ({"reward": True}, "reward: expected a number or null, got 'True'"),
        ({"step": 1.5}, "step: expected a whole number from 0, got '1.5'"),
        ({"text": None}, "text: expected a string, got 'None'"),
        ({"stop": 3}, "stop: expected a string or null, got '3'"),
        ({"finish_reason": "abort"}, 'finish_reason: expected "stop" or "length", got \'abort\''),
        ({"token_ids": [1, "2"]}, "token_ids: expected a list of tokens' numbers"),
        ({"token_ids": [1, -1]}, "token_ids: expected a list of tokens' numbers"),
        ({"token_ids": [2**40]}, "token_ids: expected a list of tokens' numbers"),
        ({"tokens": -1}, "tokens: expected a whole number from 0, got '-1'"),
        ({"token_ids": [1]}, "token_logps: 3 entries, but token_ids has 1"),
        ({"token_logps": 3}, "token_logps: expected a list of numbers, got '3'"),
        ({"token_logps": [1e301]}, "token_logps: expected a list of numbers"),
        ({"sample": -1}, "sample: expected a whole number from 0, got '-1'"),
        ({"reward": 10**400}, "reward: expected a number or null"),
        ({"extra": 1}, r"missing keys \[\], unknown keys \['extra'\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = write_step(tmp_path, 1, [trajectory()])
    with path.open("a") as file:
        file.write(json.dumps({**asdict(trajectory()), **change}) + "\n")
    with pytest.raises(StorageError, match=rf"step_000001.jsonl, line 2: {message}"):
        list(read_step(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "expected a JSON object, got list"),
        ("{}", r"missing keys \['fingerprint', .*'token_logps'\]"),
        ('{"reward": NaN}', "NaN is not a number"),
        ('{"reward": 1', "Expecting"),
    ],
)
def test_a_line_that_is_no_trajectory_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = RunDirectory(tmp_path).trajectory_file(7)
    path.parent.mkdir()
    path.write_text(line + "\n")
    with pytest.raises(StorageError, match=rf"step_000007.jsonl, line 1: {message}"):
        list(RunReader(tmp_path).trajectories())


def test_a_directory_without_trajectories_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds no shared trajectories"):
        list(RunReader(tmp_path).trajectories())
