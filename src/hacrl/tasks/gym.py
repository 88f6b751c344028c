"""Tasks of the reasoning-gym package, by name, scored by its own scorers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from hacrl.tasks.procedural import Interleaved, Split, split_of
from hacrl.tasks.rows import text_key
from hacrl.tasks.task import Task, TaskError, equal_share
from hacrl.types import Prompt

Config = dict[str, JsonValue]

PREFIX = "gym:"
JOINED = "+"
"""Between the names of several tasks."""

MOST_DRAWS = 20
"""Draws per requested question before giving up: the task has too few distinct ones."""


def load_gym(
    name: str,
    *,
    train: int = 1000,
    test: int = 200,
    seed: int = 0,
    config: Mapping[str, JsonValue] | None = None,
    by_text: bool = False,
) -> Task:
    """The task `gym:NAME` with distinct questions; `config` is reasoning-gym's and sets the difficulty.

    `gym:NAME+NAME` has questions of several tasks in turn; `config` then has that of each under its name.
    Test questions are not among the training questions of the same seed; with `by_text`, a hash of the text
    decides, and they are not among those of any seed. That takes a task with many questions.
    """
    configs = _configs(name, config or {})
    sizes: dict[Split, int] = {
        "test": equal_share(name, "test", test, len(configs)),
        "train": equal_share(name, "train", train, len(configs)),
    }
    parts: dict[Split, list[list[Prompt]]] = {split: [] for split in sizes}
    for dataset, settings in configs.items():
        taken: set[str] = set()  # by the test questions, then by those for training as well
        for split, size in sizes.items():
            entries = _entries(dataset, MOST_DRAWS * size, 2 * seed + (split == "test"), settings)
            only = split if by_text else None
            parts[split].append(_distinct(dataset, entries, size, taken, only))
    train_prompts, test_prompts = Interleaved(parts["train"]), Interleaved(parts["test"])
    return Task(name=name, train=train_prompts, test=test_prompts, verifier="reasoning_gym")


def _configs(name: str, config: Mapping[str, JsonValue]) -> dict[str, Config]:
    """The settings of each task, by its name."""
    datasets = name.removeprefix(PREFIX).split(JOINED)
    if len(datasets) == 1:
        return {datasets[0]: dict(config)}
    configs = {dataset: config.get(dataset, {}) for dataset in datasets}
    wrong = set(config) - set(configs) or {key for key, each in configs.items() if not isinstance(each, dict)}
    if wrong:
        raise TaskError(
            f"task {name!r}: config.{min(wrong)} is wrong: with several tasks, `config` has a mapping "
            f"for each, under {', '.join(configs)}"
        )
    return {dataset: dict(each) for dataset, each in configs.items() if isinstance(each, dict)}


def _distinct(
    dataset: str,
    entries: Iterable[tuple[str, dict[str, Any]]],
    size: int,
    taken: set[str],
    only: Split | None,
) -> list[Prompt]:
    """`size` distinct questions, none of them in `taken`; `only` those whose text is of a split."""
    prompts: list[Prompt] = []
    for number, entry in entries:
        prompt = Prompt(
            id=f"{dataset}-{number}",
            text=entry["question"],
            kind=dataset,
            columns={"answer": entry["answer"], "reasoning_gym": {"dataset": dataset, "entry": entry}},
        )
        key = text_key(prompt)
        if key not in taken and only in (None, split_of(prompt)):
            taken.add(key)
            prompts.append(prompt)
            if len(prompts) == size:
                return prompts
    raise TaskError(
        f"task {PREFIX + dataset!r}: only {len(prompts)} of {size} distinct questions found; "
        "ask for fewer or make it harder with `config`"
    )


def _entries(dataset: str, most: int, seed: int, settings: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Up to `most` entries of reasoning-gym and their numbers: a question, and what its scorer needs."""
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
        yield f"{seed}-{index}", source[index]


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
