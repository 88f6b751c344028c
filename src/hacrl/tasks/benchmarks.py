"""The data of the HACPO paper (arXiv 2603.02604), by name, from the hub or from a local directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacrl.rewards.extract import after_hashes, last_boxed
from hacrl.tasks.rows import (
    Columns,
    NumberedRow,
    Row,
    read_prompts,
    with_template,
    without_test_questions,
)
from hacrl.tasks.sources import READERS, read_rows, read_split
from hacrl.tasks.task import Task, TaskError
from hacrl.types import Prompt

TEMPLATE = "{prompt} Let's think step by step and output the final answer within \\boxed{}."
"""From verl's preparation of MATH, which the authors train on; used here for every benchmark."""

QUESTION = ("problem", "question")
KIND = ("type", "subject", "subfield")
"""Names of these columns in the published copies, in order of preference."""


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark is found and how it is evaluated."""

    hub: str
    subset: str | None = None
    splits: tuple[str, ...] = ("test",)
    test_samples: int = 1


BENCHMARKS = {
    "math": Benchmark("DigitalLearningGmbH/MATH-lighteval", splits=("train", "test")),
    "math500": Benchmark("HuggingFaceH4/MATH-500"),
    "gsm8k": Benchmark("openai/gsm8k", subset="main", splits=("train", "test")),
    "aime2025": Benchmark("math-ai/aime25", test_samples=16),
    "amc23": Benchmark("math-ai/amc23"),
    "minerva": Benchmark("math-ai/minervamath"),
    "olympiadbench": Benchmark("math-ai/olympiadbench"),
}


def load_benchmark(name: str, *, directory: str | None = None, template: str = TEMPLATE) -> Task:
    """A data set of the paper, from the hub, or from files like `DIRECTORY/gsm8k_test.jsonl`."""
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
    return read_prompts(source, map(_with_our_columns, rows), f"{name}-{split}", Columns(id="unique_id"))


def _with_our_columns(numbered: NumberedRow) -> NumberedRow:
    """The row with its columns renamed to `prompt`, `answer` and `kind`."""
    where, row = numbered
    if isinstance(row, str):
        return numbered
    question = next((name for name in QUESTION if name in row), None)
    if question is None:
        return where, f"no column {' or '.join(map(repr, QUESTION))}; there are: {', '.join(row)}"
    kind = next((row[name] for name in KIND if name in row), None)
    others = {name: value for name, value in row.items() if name != question}
    return where, {**others, "prompt": row[question], "answer": _gold(row), "kind": kind}


def _gold(row: Row) -> Any:
    r"""The final answer: OlympiadBench lists it, GSM8K writes `#### 1,234`, MATH puts it in `\boxed{}`."""
    answer = row.get("answer") if row.get("final_answer") is None else row["final_answer"]
    if answer is None:
        return last_boxed(str(row.get("solution", "")))
    if isinstance(answer, list):
        return ", ".join(map(str, answer))
    marked = after_hashes(answer) if isinstance(answer, str) else None
    return answer if marked is None else marked.replace(",", "")


def _local_file(name: str, benchmark: Benchmark, split: str, directory: Path) -> Path | None:
    stems = [f"{name}_{split}", *([name] if benchmark.splits == (split,) else [])]
    candidates = [directory / f"{stem}{ending}" for stem in stems for ending in READERS]
    return next((path for path in candidates if path.is_file()), None)


def _not_found(name: str, benchmark: Benchmark, directory: str | None) -> str:
    wanted = " or ".join(f"{name}_{split}{{{','.join(READERS)}}}" for split in benchmark.splits)
    return f"task {name!r}: {directory} has no {wanted}; leave `directory` out to load it from the hub"
