"""The data of the HACPO paper (arXiv 2603.02604), by name, from the hub or from a local directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacrl.rewards.extract import after_hashes, last_boxed
from hacrl.tasks.files import READERS, read_rows
from hacrl.tasks.hub import read_split
from hacrl.tasks.rows import (
    Columns,
    NumberedRow,
    Row,
    read_prompts,
    with_template,
    without_test_questions,
)
from hacrl.tasks.task import Task, TaskError
from hacrl.types import Prompt

TEMPLATE = "{prompt} Let's think step by step and output the final answer within \\boxed{}."
"""The wording of verl's preparation of MATH, which the authors train on; here it serves every benchmark."""

Gold = Callable[[Row], Any]


def _answer(row: Row) -> Any:
    return row.get("answer")


def _boxed_in_solution(row: Row) -> Any:
    return row.get("answer") or last_boxed(str(row.get("solution", "")))


def _after_hashes(row: Row) -> Any:
    """GSM8K's answers are worked solutions that end in `#### 1,234`."""
    found = after_hashes(str(row.get("answer", "")))
    return found.replace(",", "") if found else None


def _final_answers(row: Row) -> Any:
    """OlympiadBench lists one or more answers."""
    answers = row.get("final_answer", row.get("answer"))
    return ", ".join(map(str, answers)) if isinstance(answers, list) else answers


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark is found and how its rows are read."""

    hub: str
    question: str
    gold: Gold = _answer
    subset: str | None = None
    splits: tuple[str, ...] = ("test",)
    kind: str = "kind"
    test_samples: int = 1


BENCHMARKS = {
    "math": Benchmark(
        "DigitalLearningGmbH/MATH-lighteval",
        question="problem",
        gold=_boxed_in_solution,
        splits=("train", "test"),
        kind="type",
    ),
    "math500": Benchmark(
        "HuggingFaceH4/MATH-500", question="problem", gold=_boxed_in_solution, kind="subject"
    ),
    "gsm8k": Benchmark(
        "openai/gsm8k", question="question", gold=_after_hashes, subset="main", splits=("train", "test")
    ),
    "aime2025": Benchmark("math-ai/aime25", question="problem", test_samples=16),
    "amc23": Benchmark("math-ai/amc23", question="question"),
    "minerva": Benchmark("math-ai/minervamath", question="question"),
    "olympiadbench": Benchmark(
        "math-ai/olympiadbench", question="question", gold=_final_answers, kind="subfield"
    ),
}


def load_benchmark(name: str, *, directory: str | None = None, template: str = TEMPLATE) -> Task:
    """A data set of the paper, from files like `DIRECTORY/gsm8k_test.jsonl`; no directory means the hub."""
    if "{prompt}" not in template:
        raise TaskError(f"task {name!r}: the template must contain {{prompt}}, not {template!r}")
    benchmark = BENCHMARKS[name]
    prompts = {split: _read(name, benchmark, split, directory) for split in benchmark.splits}
    test = prompts["test"]
    train = without_test_questions(name, prompts.get("train", []), test)
    if not train and not test:
        raise TaskError(_not_found(name, benchmark, directory))
    return Task(
        name=name,
        train=with_template(train, template),
        test=with_template(test, template),
        verifier="math",
        test_samples=benchmark.test_samples,
    )


def _read(name: str, benchmark: Benchmark, split: str, directory: str | None) -> list[Prompt]:
    """One split; empty if the local directory has no file for it."""
    if directory is None:
        source, rows = f"{benchmark.hub} ({split})", read_split(benchmark.hub, split, benchmark.subset)
    else:
        path = _local_file(name, benchmark, split, Path(directory))
        if path is None:
            return []
        source, rows = str(path), read_rows(path)
    columns = Columns(prompt=benchmark.question, id="unique_id", kind=benchmark.kind)
    return read_prompts(source, _with_gold(rows, benchmark.gold), f"{name}-{split}", columns)


def _with_gold(rows: Iterator[NumberedRow], gold: Gold) -> Iterator[NumberedRow]:
    for where, row in rows:
        yield where, row if isinstance(row, str) else {**row, "answer": gold(row)}


def _local_file(name: str, benchmark: Benchmark, split: str, directory: Path) -> Path | None:
    stems = [f"{name}_{split}", *([name] if benchmark.splits == (split,) else [])]
    candidates = [directory / f"{stem}{ending}" for stem in stems for ending in READERS]
    return next((path for path in candidates if path.is_file()), None)


def _not_found(name: str, benchmark: Benchmark, directory: str | None) -> str:
    wanted = " or ".join(f"{name}_{split}{{{','.join(READERS)}}}" for split in benchmark.splits)
    return f"task {name!r}: {directory} has no {wanted}; leave `directory` out to ask the hub"
