"""The update log of a run: `RUN/updates/step_000001.jsonl`, how every learner used every response.

The first line holds the step's prompts. One line follows for every update of every learner, its responses in
columns; `hacrl.training.update_log` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hacrl.printable import printable
from hacrl.runs.json_files import expect, is_integer, is_number, parse_jsonl

PLACES = (None, "inside", "below", "above")
"""Where a peer's ratio lies; None for own responses, and where there is no window or no ratio."""


@dataclass(frozen=True, slots=True)
class LoggedUpdate:
    """One update of one learner. Columns have an entry for each response of the mini-batch."""

    learner: str
    update: int
    """Counted within the step, from 0."""
    window: tuple[float, float] | None
    """Bounds of peers' ratios, if the method has any."""
    source: list[str]
    prompt_id: list[str]
    sample: list[int]
    advantage: list[float]
    omega: list[float]
    ratio: list[float | None]
    """None: advantage 0, so nothing was computed."""
    place: list[str | None]
    """One of `PLACES`."""
    coefficient: list[float]
    """Gradient coefficient: advantage times weight; 0 where a clip or the window cuts the response off."""


@dataclass(frozen=True, slots=True)
class StepUpdates:
    """The update log of one step."""

    prompts: dict[str, Any]
    """By id: `text` and the gold `answer`."""
    updates: list[LoggedUpdate]


def read_updates(path: Path, agents: Collection[str] | None = None) -> StepUpdates:
    """One step's file; with `agents`, only they may be learners and sources.

    A bad line is an error that names file, line and reason.
    """
    step = StepUpdates({}, [])
    for line in parse_jsonl(path, partial(_parse, agents)):
        if isinstance(line, LoggedUpdate):
            step.updates.append(line)
        else:
            step.prompts.update(line)
    return step


def _parse(agents: Collection[str] | None, line: object) -> LoggedUpdate | dict[str, Any]:
    """An update, or the prompts of the first line."""
    if not isinstance(line, dict):
        raise ValueError(f"expected a JSON object, got {type(line).__name__}")
    if "prompts" in line:
        prompts = line["prompts"]
        expect(line, "prompts", isinstance(prompts, dict), "the step's prompts by id")
        for name in prompts:
            expect(prompts, name, _is_prompt(prompts[name]), "a text and an answer")
        return dict(line["prompts"])
    expect(line, "learner", isinstance(line.get("learner"), str), "a name")
    expect(line, "update", is_integer(line.get("update")), "a whole number")
    expect(line, "window", _is_window(line.get("window")), "two numbers from 0 or null")
    for key, (holds, expected) in _COLUMNS.items():
        _expect_column(line, key, holds, expected)
    if agents is not None:
        for name in (line["learner"], *line["source"]):
            if name not in agents:
                raise ValueError(f"{printable(name, 80)!r} is not an agent of the run")
    window = None if line["window"] is None else (line["window"][0], line["window"][1])
    columns = {key: line[key] for key in _COLUMNS}
    return LoggedUpdate(line["learner"], line["update"], window, **columns)


def _expect_column(line: Mapping[str, Any], key: str, holds: Callable[[object], bool], expected: str) -> None:
    """A list as long as `source`, whose entries are all as they should be."""
    column = line.get(key)
    expect(line, key, isinstance(column, list) and all(map(holds, column)), f"a list of {expected}")
    if len(line[key]) != len(line["source"]):
        raise ValueError(f"{key}: {len(line[key])} entries, but source has {len(line['source'])}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_prompt(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("text"), str | list):
        return False
    messages = value["text"] if isinstance(value["text"], list) else []
    answer = value.get("answer")
    return all(isinstance(message, dict) for message in messages) and isinstance(answer, str | None)


def _is_ratio(value: object) -> bool:
    return is_number(value) and value >= 0  # type: ignore[operator]  # it is a number


def _is_window(value: object) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(map(_is_ratio, value)))


_COLUMNS: dict[str, tuple[Callable[[object], bool], str]] = {
    "source": (_is_text, "names"),
    "prompt_id": (_is_text, "strings"),
    "sample": (is_integer, "whole numbers"),
    "advantage": (is_number, "numbers"),
    "omega": (is_number, "numbers"),
    "ratio": (lambda value: value is None or _is_ratio(value), "numbers from 0 or nulls"),
    "place": (lambda value: value in PLACES, f"{', '.join(map(str, PLACES[1:]))} or nulls"),
    "coefficient": (is_number, "numbers"),
}
"""`source` comes first: the others must be as long."""
