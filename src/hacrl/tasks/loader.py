"""Load any kind of task by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError, validate_call

from hacrl.tasks import gym
from hacrl.tasks.benchmarks import BENCHMARKS, load_benchmark
from hacrl.tasks.gym import load_gym
from hacrl.tasks.procedural import NAMES, load_procedural
from hacrl.tasks.rows import Columns, NumberedRow, hold_out, read_prompts, without_test_questions
from hacrl.tasks.sources import READERS, is_saved, read_rows, read_split
from hacrl.tasks.task import Task, TaskError
from hacrl.tasks.word_problems import NAME as WORD_PROBLEMS
from hacrl.tasks.word_problems import load_word_problems
from hacrl.types import Prompt


def load(name: str, **settings: Any) -> Task:
    """A task by name: built in, `gym:NAME`, one of the paper's, a file, or a Hugging Face dataset.

    `settings` are the keyword arguments of the loader for this kind of task; docs/tasks.md lists them.
    """
    loader = _loader(name)
    try:
        return validate_call(loader)(name, **settings)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise TaskError(f"task {name!r}: wrong settings: {problems}") from error


def _loader(name: str) -> Callable[..., Task]:
    if name in NAMES:
        return load_procedural
    if name == WORD_PROBLEMS:
        return load_word_problems
    if name in BENCHMARKS:
        return load_benchmark
    if name.startswith(gym.PREFIX):
        return load_gym
    if Path(name).suffix in READERS:
        return load_file
    if is_saved(Path(name)) or ("/" in name and not Path(name).exists()):
        return load_dataset
    raise TaskError(
        f"no task {name!r}; there are: {', '.join([*NAMES, WORD_PROBLEMS, *BENCHMARKS])}, "
        f"{gym.PREFIX}NAME for reasoning-gym, a file ({', '.join(READERS)}), a directory written by "
        "save_to_disk, or a hub id (OWNER/NAME)"
    )


Share = Annotated[float, Field(ge=0, le=1)]


def load_file(
    name: str,
    *,
    test: str | None = None,
    test_share: Share = 0.1,
    columns: Columns = Columns(),  # noqa: B008 -- frozen
    verifier: str = "exact",
    answers: bool = True,
) -> Task:
    """A task from a file; the test prompts are a second file, or a share of the first."""
    source = Source(name, read_rows(Path(name)))
    test_source = None if test is None else Source(test, read_rows(Path(test)))
    train, tested = _split(source, test_source, test_share, columns, answers)
    return Task(name=name, train=train, test=tested, verifier=verifier)


def load_dataset(
    name: str,
    *,
    subset: str | None = None,
    split: str = "train",
    test_split: str | None = None,
    test_share: Share = 0.1,
    columns: Columns = Columns(),  # noqa: B008 -- frozen
    verifier: str = "exact",
    answers: bool = True,
) -> Task:
    """A task from a Hugging Face dataset; the test prompts are a second split, or a share of the first."""

    def source(split: str) -> Source:
        return Source(f"{name} ({split})", read_split(name, split, subset))

    test_source = None if test_split is None else source(test_split)
    train, tested = _split(source(split), test_source, test_share, columns, answers)
    return Task(name=name, train=train, test=tested, verifier=verifier)


def from_rows(
    rows: Iterable[Mapping[str, Any]],
    test_rows: Iterable[Mapping[str, Any]] | None = None,
    *,
    name: str = "rows",
    test_share: float = 0.1,
    columns: Columns = Columns(),  # noqa: B008 -- frozen
    verifier: str = "exact",
    answers: bool = True,
) -> Task:
    """A task from rows in memory: a list of mappings, or a `datasets.Dataset`."""

    def source(label: str, given: Iterable[Mapping[str, Any]]) -> Source:
        return Source(label, ((f"row {number}", dict(row)) for number, row in enumerate(given, start=1)))

    test_source = None if test_rows is None else source(f"{name} (test)", test_rows)
    train, tested = _split(source(name, rows), test_source, test_share, columns, answers)
    return Task(name=name, train=train, test=tested, verifier=verifier)


class Source(NamedTuple):
    """Rows, and their name in messages."""

    name: str
    rows: Iterator[NumberedRow]


def _split(
    source: Source, test_source: Source | None, test_share: float, columns: Columns, answers: bool
) -> tuple[list[Prompt], list[Prompt]]:
    """Training and test prompts that have neither a question nor an id in common."""
    train = read_prompts(*source, "train", columns, answers=answers)
    if test_source is None:
        return hold_out(train, test_share)
    test = read_prompts(*test_source, "test", columns, answers=answers)
    train = without_test_questions(source.name, train, test)
    shared = {prompt.id for prompt in train} & {prompt.id for prompt in test}
    if shared:
        raise TaskError(
            f"{source.name} and {test_source.name} have ids in common, such as {min(shared)!r}: rename them"
        )
    return train, test
