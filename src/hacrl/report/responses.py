"""A fair sample of a run's responses, with what every learner did with each of them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.exchange.store import read_step
from hacrl.report.files import RunFiles
from hacrl.report.ratios import lesson_files, read_lessons
from hacrl.report.series import spread
from hacrl.report.tokens import load_tokenizers, piece_lengths
from hacrl.storage.rundir import RunDirectory
from hacrl.types import Trajectory

BUDGET = 1_400_000
"""Bytes of a report spent on responses."""
MOST_STEPS = 24
LONGEST = 4000
"""Characters of a response that are kept."""
PLACES = (None, "inside", "below", "above")

Key = tuple[str, str, int]
"""Source, prompt, sample."""
Row = dict[str, Any]


def response_data(run: RunFiles) -> dict[str, Any] | None:
    """Responses to whole prompts of evenly spaced steps, as many as fit; None when none were kept.

    Prompts are chosen by a hash of their names and every step gets equally many, so that neither rewards nor
    texts decide what is shown.
    """
    files = _trajectory_files(run.path)
    for most in (MOST_STEPS, 12, 6, 3, 1):
        steps = spread(list(files), most)
        by_step = {step: _by_prompt(run, step, files[step]) for step in steps}
        prompts = _fitting(by_step)
        if prompts:
            return _packed(run, by_step, prompts, len(files))
    return None


def _trajectory_files(run: Path) -> dict[int, Path]:
    paths = sorted(RunDirectory(run).trajectories.glob("step_*.jsonl"))
    return {int(path.stem.removeprefix("step_")): path for path in paths}


def _by_prompt(run: RunFiles, step: int, path: Path) -> dict[str, list[Row]]:
    """A step's responses by prompt, prompts in the order of their hashes."""
    tokenizers = load_tokenizers(run.path, run.recipe)
    groups: dict[str, list[Row]] = defaultdict(list)
    for found in read_step(path):
        lengths = piece_lengths(tokenizers.get(found.source), found.token_ids, found.text)
        groups[found.prompt_id].append(_row(run, found, lengths))
    return {prompt: groups[prompt] for prompt in sorted(groups, key=lambda prompt: _hash(step, prompt))}


def _row(run: RunFiles, found: Trajectory, lengths: list[int] | None) -> Row:
    cut = len(found.text) > LONGEST
    tokens = _tokens_within(lengths, len(found.token_logps)) if cut else len(found.token_logps)
    row: Row = {
        "step": found.step,
        "prompt": found.prompt_id,
        "agent": run.agents.index(found.source),
        "sample": found.sample,
        "reward": found.reward,
        "text": found.text[:LONGEST],
        "logps": [round(-100 * logp) for logp in found.token_logps[:tokens]],
        "tokens": len(found.token_ids),
    }
    if lengths is not None:
        row["pieces"] = lengths[:tokens]
    if found.finish_reason == "length":
        row["unfinished"] = True
    if cut:
        row["characters"] = len(found.text)
    return row


def _tokens_within(lengths: Sequence[int] | None, tokens: int) -> int:
    """How many tokens lie within the characters that are kept."""
    if lengths is None:
        return min(tokens, LONGEST // 4)
    seen = 0
    for number, length in enumerate(lengths):
        seen += length
        if seen > LONGEST:
            return number
    return tokens


def _fitting(by_step: Mapping[int, Mapping[str, Sequence[Row]]]) -> dict[int, list[str]]:
    """The first prompts of every step, equally many of each, as many as the budget allows."""
    sizes = {
        step: [sum(len(json.dumps(row)) + _LESSON_BYTES for row in rows) for rows in groups.values()]
        for step, groups in by_step.items()
    }
    number = 0
    most = max((len(groups) for groups in by_step.values()), default=0)
    while number < most and sum(sum(size[: number + 1]) for size in sizes.values()) <= BUDGET:
        number += 1
    return {step: list(groups)[:number] for step, groups in by_step.items()} if number else {}


_LESSON_BYTES = 180
"""About what the lessons of four learners add to a response."""


def _packed(
    run: RunFiles,
    by_step: Mapping[int, Mapping[str, list[Row]]],
    chosen: Mapping[int, Sequence[str]],
    steps_in_all: int,
) -> dict[str, Any]:
    prompts: dict[str, Any] = {}
    rows = []
    for step, names in chosen.items():
        lessons = _lessons(run, step, set(names), prompts)
        for name in names:
            for row in by_step[step][name]:
                key = run.agents[row["agent"]], name, row["sample"]
                rows.append({**row, "lessons": lessons[key]})
    return {
        "rows": rows,
        "prompts": {row["prompt"]: prompts.get(row["prompt"]) for row in rows},
        "steps": list(chosen),
        "steps_in_all": steps_in_all,
        "in_all_of_steps": sum(len(group) for groups in by_step.values() for group in groups.values()),
    }


def _lessons(
    run: RunFiles, step: int, chosen: set[str], prompts: dict[str, Any]
) -> dict[Key, list[list[Any]]]:
    """What every learner did with the chosen responses; fills in the prompts' texts."""
    lessons: dict[Key, list[list[Any]]] = defaultdict(list)
    path = lesson_files(run.path).get(step)
    for lesson in read_lessons(path) if path else ():
        if "prompts" in lesson:
            prompts |= {name: lesson["prompts"][name] for name in chosen & set(lesson["prompts"])}
            continue
        learner = run.agents.index(lesson["learner"])
        for key, values in _columns(lesson):
            if key[1] in chosen:
                lessons[key].append([learner, lesson["update"], *values])
    return lessons


def _columns(lesson: Mapping[str, Any]) -> Iterator[tuple[Key, list[Any]]]:
    """Advantage, omega, ratio, place and pull of every row; numbers as a reader needs them."""
    keys = zip(lesson["source"], lesson["prompt_id"], lesson["sample"], strict=True)
    numbers = zip(lesson["advantage"], lesson["omega"], lesson["ratio"], lesson["pull"], strict=True)
    for key, place, values in zip(keys, lesson["place"], numbers, strict=True):
        advantage, omega, ratio, pull = (None if value is None else float(f"{value:.4g}") for value in values)
        yield key, [advantage, omega, ratio, PLACES.index(place), pull]


def _hash(step: int, prompt: str) -> bytes:
    return hashlib.blake2b(f"{step}/{prompt}".encode(), digest_size=8).digest()
