"""Writes the update log (how every learner used every response) and the warnings of a run.

`RUN/updates/step_000001.jsonl` begins with the step's prompts; then follows a line for every update of every
learner, its rows in columns. `RUN/warnings.jsonl` has a line for every warning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from hacrl.runs.directory import RunDirectory, step_files
from hacrl.runs.files import append_jsonl, make_directory, remove_file, write_atomic
from hacrl.runs.json_files import step_of, truncate_jsonl
from hacrl.training.updates import UpdateRecord
from hacrl.types import Prompt


def write_updates(
    run: RunDirectory, step: int, prompts: Iterable[Prompt], updates: Iterable[UpdateRecord]
) -> None:
    """Write all of a step's updates at once: the file is there completely or not at all."""
    lines = [{"prompts": {prompt.id: _prompt(prompt) for prompt in prompts}}, *map(_line, updates)]
    make_directory(run.updates)
    path = run.update_file(step)
    write_atomic(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())


def write_warnings(run: RunDirectory, step: int, messages: Iterable[str]) -> None:
    """Keep the warnings shown after a step."""
    for message in messages:
        append_jsonl(run.warnings, {"step": step, "message": message})


def forget_after(run: RunDirectory, step: int) -> None:
    """Drop what was written after a step: a resumed run writes it again."""
    truncate_jsonl(run.warnings, lambda line: step_of(line) <= step)
    for written, path in step_files(run.updates).items():
        if written > step:
            remove_file(path)


def _prompt(prompt: Prompt) -> dict[str, Any]:
    answer = prompt.columns.get("answer")
    return {"text": prompt.text, "answer": None if answer is None else str(answer)}


def _line(update: UpdateRecord) -> dict[str, Any]:
    """The columns of one update. Rows with advantage 0 are not computed: ratio None, coefficient 0."""
    rows = update.rows
    return {
        "learner": update.learner,
        "update": update.number,
        "window": update.window,
        "source": [row.source for row in rows],
        "prompt_id": [row.prompt_id for row in rows],
        "sample": [row.sample for row in rows],
        "advantage": [_rounded(row.advantage) for row in rows],
        "omega": [_rounded(row.omega) for row in rows],
        "ratio": [None if math.isnan(ratio) else _rounded(ratio) for ratio in update.ratios.tolist()],
        "place": update.places,
        "coefficient": [_rounded(value) for value in update.coefficients],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
