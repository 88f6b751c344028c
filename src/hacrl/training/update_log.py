"""What every learner did with every response, and what a run warned of: kept in the run for its report.

`RUN/lessons/step_000001.jsonl` begins with the step's prompts; then follows a line for every update of every
learner, its rows in columns. `RUN/warnings.jsonl` has a line for every warning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from hacrl.agents.backends.interfaces import response_mask
from hacrl.agents.updater import source_data
from hacrl.algorithm import HacpoObjective
from hacrl.algorithm.batch import Objective
from hacrl.algorithm.ratio import LOG_RATIO_BOUND, window_lower
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import append_jsonl, make_directory, truncate_jsonl, write_atomic
from hacrl.training.alignment import numbered_updates
from hacrl.training.step import StepRecord
from hacrl.types import MiniBatch, Prompt, TrainingRow

CPU = torch.device("cpu")
Window = tuple[float, float]


def write_updates(run: RunDirectory, record: StepRecord) -> None:
    """Write all of a step's lessons at once: the file is there completely or not at all."""
    prompts = {prompt.id: _prompt(prompt) for prompt in record.prompts}
    lines = [{"prompts": prompts}, *_lessons(record)]
    make_directory(run.lessons)
    path = run.lessons / f"step_{record.step:06d}.jsonl"
    write_atomic(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())


def write_warnings(run: RunDirectory, step: int, messages: Iterable[str]) -> None:
    """Keep what the user was told after a step."""
    for message in messages:
        append_jsonl(run.warnings, {"step": step, "message": message})


def forget_after(run: RunDirectory, step: int) -> None:
    """Drop what was written after a step: a resumed run writes it again."""
    truncate_jsonl(run.warnings, lambda line: line["step"] <= step)
    for path in run.lessons.glob("step_*.jsonl"):
        if int(path.stem.removeprefix("step_")) > step:
            path.unlink()


def gradient_coefficients(
    rows: Sequence[TrainingRow], mean_logps: Sequence[float], objective: Objective, update: int
) -> list[float]:
    """How hard an update pulls each response: minus the slope of its loss over its mean log-prob.

    That is advantage times weight, whatever the method; 0 where a clip or window cuts the response off. Of
    the learner's log-probs the mean is known: all tokens are taken to differ from the source's by the same.
    """
    data = source_data(rows, CPU)
    mean = torch.tensor(mean_logps)[:, None]
    mask = response_mask([(row.prompt_ids, row.response_ids) for row in rows], CPU)
    shifted = data.source_logps + mean - data.source_mean_logp[:, None]
    by_token = torch.tensor([bool(row.source_logps) for row in rows])[:, None]
    logps = torch.where(by_token, shifted, mean).masked_fill(~mask, 0.0).requires_grad_()
    losses = objective(logps, mask, data, update)
    if not losses.requires_grad:  # an objective may give rows no gradient at all
        return [0.0] * len(rows)
    (slopes,) = torch.autograd.grad(losses.sum(), logps)
    return [0.0 - slope for slope in slopes.sum(1).tolist()]


def _prompt(prompt: Prompt) -> dict[str, Any]:
    answer = prompt.columns.get("answer")
    return {"text": prompt.text, "answer": None if answer is None else str(answer)}


def _lessons(record: StepRecord) -> Iterator[dict[str, Any]]:
    """A line for every update that was made, in order."""
    for learner, reports in record.reports.items():
        updates = numbered_updates(record.batches[learner])
        for report, (update, objective, rows) in zip(reports, updates, strict=False):
            yield {
                "learner": learner,
                "update": update,
                **_lesson(rows, report.mean_logps, objective, update),
            }


def _lesson(
    rows: MiniBatch, mean_logps: Sequence[float], objective: Objective, update: int
) -> dict[str, Any]:
    """The columns of one update. Rows with advantage 0 are not computed: ratio None, pull 0."""
    window = _window(objective, update)
    computed = [i for i, mean in enumerate(mean_logps) if not math.isnan(mean)]
    pull = [0.0] * len(rows)
    if computed:
        found = gradient_coefficients(
            [rows[i] for i in computed], [mean_logps[i] for i in computed], objective, update
        )
        for i, value in zip(computed, found, strict=True):
            pull[i] = value
    ratios = [_ratio(row, mean) for row, mean in zip(rows, mean_logps, strict=True)]
    return {
        "window": window,
        "source": [row.source for row in rows],
        "prompt_id": [row.prompt_id for row in rows],
        "sample": [row.sample for row in rows],
        "advantage": [_rounded(row.advantage) for row in rows],
        "omega": [_rounded(row.omega) for row in rows],
        "ratio": [None if ratio is None else _rounded(ratio) for ratio in ratios],
        "place": [
            None if row.own else _place(ratio, window) for row, ratio in zip(rows, ratios, strict=True)
        ],
        "pull": [_rounded(value) for value in pull],
    }


def _ratio(row: TrainingRow, mean_logp: float) -> float | None:
    if math.isnan(mean_logp):
        return None
    log_ratio = row.length_scale * (mean_logp - row.source_mean_logp)
    return math.exp(max(-LOG_RATIO_BOUND, min(LOG_RATIO_BOUND, log_ratio)))


def _window(objective: Objective, update: int) -> Window | None:
    """Bounds of peers' ratios at this update, when the method has any."""
    if isinstance(objective, HacpoObjective) and objective.params.window:
        return window_lower(update, objective.params), 1.0
    return None


def _place(ratio: float | None, window: Window | None) -> str | None:
    """Where a peer's response lies; None when there is no window or no ratio."""
    if ratio is None or window is None:
        return None
    if ratio < window[0]:
        return "below"
    return "above" if ratio > window[1] else "inside"


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
