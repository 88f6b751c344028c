"""Tasks of the reasoning-gym package, by name, scored by its own scorers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from hacrl.tasks.rows import text_key
from hacrl.tasks.task import Task, TaskError
from hacrl.types import Prompt

PREFIX = "gym:"

MOST_DRAWS = 20
"""Draws per requested question before giving up: the task has too few distinct ones."""


def load_gym(
    name: str,
    *,
    train: int = 1000,
    test: int = 200,
    seed: int = 0,
    config: Mapping[str, JsonValue] | None = None,
) -> Task:
    """The task `gym:NAME` with distinct questions; `config` is reasoning-gym's and sets the difficulty."""
    dataset = name.removeprefix(PREFIX)
    settings = dict(config or {})
    tested = _distinct(dataset, test, 2 * seed + 1, settings, taken=set())
    trained = _distinct(dataset, train, 2 * seed, settings, taken={text_key(prompt) for prompt in tested})
    return Task(name=name, train=trained, test=tested, verifier="reasoning_gym")


def _distinct(
    dataset: str, size: int, seed: int, settings: dict[str, JsonValue], taken: set[str]
) -> list[Prompt]:
    """`size` distinct questions, none of them in `taken`."""
    if size < 1:
        raise TaskError(f"task {PREFIX + dataset!r}: train and test must be at least 1, not {size}")
    prompts: list[Prompt] = []
    for index, entry in enumerate(_entries(dataset, MOST_DRAWS * size, seed, settings)):
        prompt = Prompt(
            id=f"{dataset}-{seed}-{index}",
            text=entry["question"],
            kind=dataset,
            columns={"answer": entry["answer"], "reasoning_gym": {"dataset": dataset, "entry": entry}},
        )
        key = text_key(prompt)
        if key not in taken:
            taken.add(key)
            prompts.append(prompt)
            if len(prompts) == size:
                return prompts
    raise TaskError(
        f"task {PREFIX + dataset!r}: only {len(prompts)} of {size} distinct questions found; "
        "ask for fewer or make it harder with `config`"
    )


def _entries(dataset: str, most: int, seed: int, settings: dict[str, JsonValue]) -> Iterator[dict[str, Any]]:
    """Up to `most` entries of reasoning-gym: a question each, with what its scorer needs."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise TaskError(f"task {PREFIX + dataset!r} needs reasoning-gym: pip install 'hacrl[gym]'") from error
    if dataset not in DATASETS:
        raise TaskError(f"reasoning-gym has no task {dataset!r}; it has: {', '.join(sorted(DATASETS))}")
    try:
        source = reasoning_gym.create_dataset(dataset, size=most, seed=seed, **settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise TaskError(
            f"task {PREFIX + dataset!r}: reasoning-gym rejects config {settings}: {error}"
        ) from error
    _check_scorer(dataset, source)
    for index in range(most):
        yield source[index]


def _check_scorer(dataset: str, source: Any) -> None:
    """Check that the scorer gives the same score after a round trip of the entry through JSON.

    Scoring happens in another process, which receives the entry as JSON.
    """
    entry = source[0]
    if entry["answer"] is None:
        return
    received = json.loads(json.dumps(entry))
    if source.score_answer(entry["answer"], received) != source.score_answer(entry["answer"], entry):
        raise TaskError(f"task {PREFIX + dataset!r}: its scorer cannot score an entry that was sent as JSON")
