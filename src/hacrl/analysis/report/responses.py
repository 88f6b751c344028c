"""A fair sample of a run's responses, with what every learner did with each of them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from hacrl.analysis.report.files import RunFiles
from hacrl.analysis.report.ratios import read_updates, update_files
from hacrl.analysis.report.series import spread
from hacrl.analysis.report.tokens import load_tokenizers, piece_lengths
from hacrl.runs.directory import RunDirectory
from hacrl.runs.trajectories import read_step
from hacrl.types import Trajectory

BUDGET = 1_400_000
"""Bytes of a report spent on responses."""
MOST_STEPS = 24
FEWEST_STEPS = 2
"""The first and the last are looked at, however long their responses are."""
MOST_READ = 400_000_000
"""Bytes of trajectories read for a report: fewer steps of a run with long responses are looked at."""
LONGEST = 4000
"""Characters of a response that are kept."""
PLACES = (None, "inside", "below", "above")

Key = tuple[str, str, int]
"""Source, prompt, sample."""
Groups = dict[str, list[Trajectory]]
"""Responses by prompt."""


def response_data(run: RunFiles) -> dict[str, Any] | None:
    """Responses to whole prompts of evenly spaced steps, as many as fit; None when none were kept.

    Prompts are chosen by a hash of their names and every step gets equally many, so that neither rewards nor
    texts decide what is shown.
    """
    files = _trajectory_files(run.path)
    if not files:
        return None
    for most in (MOST_STEPS, 12, 6, 3, FEWEST_STEPS):
        steps = spread(list(files), most)
        if most > FEWEST_STEPS and sum(files[step].stat().st_size for step in steps) > MOST_READ:
            continue
        by_step = {step: _by_prompt(files[step], files[step].stat().st_mtime_ns, step) for step in steps}
        number = _fitting(list(by_step.values()), learners=len(run.agents))
        if number:
            break
    return _packed(run, by_step, max(1, number), len(files))


def _trajectory_files(run: Path) -> dict[int, Path]:
    paths = sorted(RunDirectory(run).trajectories.glob("step_*.jsonl"))
    return {int(path.stem.removeprefix("step_")): path for path in paths}


@lru_cache(maxsize=2 * MOST_STEPS)
def _by_prompt(path: Path, written: int, step: int) -> Groups:
    """A step's responses, prompts in the order of their hashes; read again only when written again."""
    groups: Groups = defaultdict(list)
    for trajectory in read_step(path):
        groups[trajectory.prompt_id].append(trajectory)
    return {prompt: groups[prompt] for prompt in sorted(groups, key=lambda prompt: _hash(step, prompt))}


def _hash(step: int, prompt: str) -> bytes:
    return hashlib.blake2b(f"{step}/{prompt}".encode(), digest_size=8).digest()


def _fitting(steps: Sequence[Groups], learners: int) -> int:
    """How many prompts of every step fit into the budget."""
    sizes = [[sum(_size(t, learners) for t in group) for group in groups.values()] for groups in steps]
    number, most = 0, max(map(len, sizes), default=0)
    while number < most and sum(sum(size[: number + 1]) for size in sizes) <= BUDGET:
        number += 1
    return number


def _size(found: Trajectory, learners: int) -> int:
    """About how many bytes a response takes: its text, two small numbers a token, an update a learner."""
    characters = min(LONGEST, len(found.text))
    return 110 + characters + 6 * min(len(found.token_ids), LONGEST) + 45 * learners


def _packed(run: RunFiles, by_step: Mapping[int, Groups], number: int, steps_in_all: int) -> dict[str, Any]:
    tokenizers = load_tokenizers(run.path, run.agents)
    updates_of = update_files(run.path)
    prompts: dict[str, Any] = {}
    rows = []
    for step, groups in by_step.items():
        chosen = list(groups)[:number]
        prompts |= dict.fromkeys(chosen)
        updates = _updates(updates_of.get(step), run.agents, prompts, set(chosen))
        for trajectory in (trajectory for prompt in chosen for trajectory in groups[prompt]):
            key = trajectory.source, trajectory.prompt_id, trajectory.sample
            rows.append({**_row(trajectory, run.agents, tokenizers), "updates": updates.get(key, [])})
    return {
        "rows": rows,
        "prompts": prompts,
        "steps": list(by_step),
        "steps_in_all": steps_in_all,
        "in_all_of_steps": sum(len(group) for groups in by_step.values() for group in groups.values()),
    }


def _row(found: Trajectory, agents: Sequence[str], tokenizers: Mapping[str, Tokenizer]) -> dict[str, Any]:
    lengths = piece_lengths(tokenizers.get(found.source), found.token_ids, found.text)
    cut = len(found.text) > LONGEST
    tokens = _tokens_within(lengths, len(found.token_logps)) if cut else len(found.token_logps)
    row: dict[str, Any] = {
        "step": found.step,
        "prompt": found.prompt_id,
        "agent": agents.index(found.source),
        "sample": found.sample,
        "reward": found.reward,
        "text": found.text[:LONGEST],
        "logps": [round(-100 * logp) for logp in found.token_logps[:tokens]],
        "tokens": len(found.token_ids),
        "mean": round(sum(found.token_logps) / max(1, len(found.token_logps)), 4),
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


def _updates(
    path: Path | None, agents: Sequence[str], prompts: dict[str, Any], chosen: set[str]
) -> dict[Key, list[list[Any]]]:
    """What every learner did with the responses to the chosen prompts; fills in the prompts' texts."""
    updates: dict[Key, list[list[Any]]] = defaultdict(list)
    for update in read_updates(path) if path else ():
        if "prompts" in update:
            prompts |= {name: text for name, text in update["prompts"].items() if name in chosen}
            continue
        learner = agents.index(update["learner"])
        columns = [update[name] for name in _COLUMNS]
        for source, prompt, sample, place, *numbers in zip(*columns, strict=True):
            if prompt in chosen:
                values = [None if value is None else float(f"{value:.4g}") for value in numbers]
                updates[source, prompt, sample].append(
                    [learner, update["update"], PLACES.index(place), *values]
                )
    return updates


_COLUMNS = ("source", "prompt_id", "sample", "place", "advantage", "omega", "ratio", "coefficient")
