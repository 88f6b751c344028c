"""The update log is read back column by column; a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hacrl.runs.files import StorageError
from hacrl.runs.updates import LoggedUpdate, read_updates

PROMPTS = {"p0": {"text": "1+1", "answer": "2"}}
UPDATE: dict[str, Any] = {
    "learner": "ada",
    "update": 0,
    "window": [0.8, 1.0],
    "source": ["ada", "eve"],
    "prompt_id": ["p0", "p0"],
    "sample": [0, 1],
    "advantage": [0.5, 0.0],
    "omega": [1.0, 1.2],
    "ratio": [1.0, None],
    "place": [None, "inside"],
    "coefficient": [0.5, 0],
}


def write(directory: Path, *lines: Any) -> Path:
    path = directory / "step_000001.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_prompts_and_updates_come_back(tmp_path: Path) -> None:
    found = read_updates(write(tmp_path, {"prompts": PROMPTS}, UPDATE, UPDATE | {"window": None}))
    assert found.prompts == PROMPTS
    expected = LoggedUpdate(**UPDATE | {"window": (0.8, 1.0)})
    assert found.updates[0] == expected
    assert [update.window for update in found.updates] == [(0.8, 1.0), None]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": None}, "learner: expected a name"),
        ({"update": 0.5}, "update: expected a whole number"),
        ({"window": [1.0]}, "window: expected two numbers from 0 or null"),
        ({"source": "ada"}, "source: expected a list of names"),
        ({"sample": [0, True]}, "sample: expected a list of whole numbers"),
        ({"ratio": [1.0, "1"]}, "ratio: expected a list of numbers from 0 or nulls"),
        ({"place": [None, "beside"]}, "place: expected a list of inside, below, above or nulls"),
        ({"coefficient": [0.5]}, "coefficient: 1 entries, but source has 2"),
        ({"prompts": []}, "prompts: expected the step's prompts by id"),
        ({"prompts": {"p": 3}}, "p: expected a text and an answer, got '3'"),
        ({"window": [-1e200, 1.0]}, "window: expected two numbers from 0 or null"),
        ({"ratio": [1.0, -1.0]}, "ratio: expected a list of numbers from 0 or nulls"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path, {"prompts": PROMPTS}, UPDATE | change)
    with pytest.raises(StorageError, match=rf"step_000001\.jsonl, line 2: {message}"):
        read_updates(path)


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="line 1: expected a JSON object, got list"):
        read_updates(write(tmp_path, [1]))
