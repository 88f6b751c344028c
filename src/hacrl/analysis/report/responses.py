"""An unbiased sample of a run's responses, with what every learner did with each of them."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from hacrl.analysis.report.series import spread
from hacrl.huggingface import panics_as_errors
from hacrl.printable import printable
from hacrl.runs.files import StorageError, file_status, read_bytes
from hacrl.runs.reader import RunReader
from hacrl.runs.trajectories import read_step
from hacrl.runs.updates import PLACES, LoggedUpdate, StepUpdates, read_updates
from hacrl.types import Trajectory

BUDGET = 1_400_000
"""Bytes of a report spent on responses."""
MOST_STEPS = 24
FEWEST_STEPS = 2
"""The first and the last step are always read, however long their responses are."""
MOST_READ = 400_000_000
"""Bytes of trajectories read for a report: with long responses, fewer steps are read."""
LONGEST = 4000
"""Characters of a response that are kept."""

Key = tuple[str, str, int]
"""Source, prompt, sample."""
Groups = dict[str, list[Trajectory]]
"""Responses by prompt."""


def response_data(run: RunReader) -> dict[str, Any] | None:
    """All responses to some prompts of evenly spaced steps, as many as fit; None if the run kept none.

    Prompts are chosen by a hash of their names, the same number from every step, so the choice does not
    depend on rewards or texts.
    """
    files = run.trajectory_files()
    if not files:
        return None
    for most in (MOST_STEPS, 12, 6, 3, FEWEST_STEPS):
        steps = spread(list(files), most)
        if most > FEWEST_STEPS and sum(file_status(files[step]).st_size for step in steps) > MOST_READ:
            continue
        by_step = {step: _groups(files[step], step, run) for step in steps}
        number = _fitting(list(by_step.values()), learners=len(run.agents))
        if number:
            break
    return _packed(run, by_step, max(1, number), len(files))


def _groups(path: Path, step: int, run: RunReader) -> Groups:
    return _by_prompt(path, file_status(path).st_mtime_ns, step, frozenset(run.agents))


@lru_cache(maxsize=2 * MOST_STEPS)
def _by_prompt(path: Path, written: int, step: int, agents: frozenset[str]) -> Groups:
    """A step's responses, prompts in the order of their hashes; cached by the time the file was `written`."""
    groups: Groups = defaultdict(list)
    for trajectory in read_step(path, agents):
        groups[trajectory.prompt_id].append(trajectory)
    return {prompt: groups[prompt] for prompt in sorted(groups, key=lambda prompt: _hash(step, prompt))}


def _hash(step: int, prompt: str) -> bytes:
    return hashlib.blake2b(f"{step}/{prompt}".encode(errors="surrogatepass"), digest_size=8).digest()


def _fitting(steps: Sequence[Groups], learners: int) -> int:
    """Number of prompts per step that fit into the budget."""
    sizes = [[sum(_size(t, learners) for t in group) for group in groups.values()] for groups in steps]
    number, most = 0, max(map(len, sizes), default=0)
    while number < most and sum(sum(size[: number + 1]) for size in sizes) <= BUDGET:
        number += 1
    return number


def _size(found: Trajectory, learners: int) -> int:
    """Approximate bytes of a response: its text, two small numbers per token, some numbers per learner."""
    characters = min(LONGEST, len(found.text))
    return 110 + characters + 6 * min(len(found.token_logps), LONGEST) + 45 * learners


def _packed(run: RunReader, by_step: Mapping[int, Groups], number: int, steps_in_all: int) -> dict[str, Any]:
    agents, tokenizers, update_files = run.agents, load_tokenizers(run), run.update_files()
    prompts: dict[str, Any] = {}
    rows = []
    for step, groups in by_step.items():
        chosen = list(groups)[:number]
        prompts |= dict.fromkeys(chosen)
        logged = (
            read_updates(update_files[step], run.sources) if step in update_files else StepUpdates({}, [])
        )
        prompts |= {name: text for name, text in logged.prompts.items() if name in chosen}
        updates = _updates_by_response(logged.updates, agents, set(chosen))
        for trajectory in (trajectory for prompt in chosen for trajectory in groups[prompt]):
            key = trajectory.source, trajectory.prompt_id, trajectory.sample
            rows.append({**_row(trajectory, agents, tokenizers), "updates": updates.get(key, [])})
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
        "tokens": found.length,
    }
    if found.token_logps:
        row["mean"] = round(sum(found.token_logps) / len(found.token_logps), 4)
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


def _updates_by_response(
    updates: Sequence[LoggedUpdate], agents: Sequence[str], chosen: set[str]
) -> dict[Key, list[list[Any]]]:
    """What every learner did with each response to the chosen prompts, in the order the page expects."""
    found: dict[Key, list[list[Any]]] = defaultdict(list)
    for update in updates:
        learner = agents.index(update.learner)
        responses = zip(update.source, update.prompt_id, update.sample, strict=True)
        numbers = zip(update.advantage, update.omega, update.ratio, update.coefficient, strict=True)
        for key, place, values in zip(responses, update.place, numbers, strict=True):
            if key[1] in chosen:
                found[key].append([learner, update.update, PLACES.index(place), *map(_short, values)])
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def load_tokenizers(run: RunReader) -> dict[str, Tokenizer]:
    """The tokenizers that a finished run exported with its agents."""
    files = {agent: run.directory.agents / agent / "tokenizer.json" for agent in run.agents}
    return {agent: _tokenizer(file) for agent, file in files.items() if os.path.lexists(file)}


def _tokenizer(file: Path) -> Tokenizer:
    try:
        with panics_as_errors():
            return Tokenizer.from_buffer(read_bytes(file))
    except ValueError as error:
        raise StorageError(f"{file} is not a tokenizer: {printable(str(error), 200)}") from error


def piece_lengths(tokenizer: Tokenizer | None, token_ids: Sequence[int], text: str) -> list[int] | None:
    """Characters of the text that each token adds; None when the tokens do not spell the text exactly."""
    if tokenizer is None:
        return None
    stream = DecodeStream(skip_special_tokens=True)
    try:
        with panics_as_errors():
            pieces = [stream.step(tokenizer, token) or "" for token in token_ids]
    except Exception:  # the library's own class: the tokens are another tokenizer's
        return None
    return [len(piece) for piece in pieces] if "".join(pieces) == text else None
