"""What all runs of a setting measured, in one small file that outlives their directories.

Pages are made from these files alone. A run whose outcome is there is not run again, so a plan can be
continued on a machine that has nothing but the repository.

A file has gzipped lines of JSON: first the methods' settings and the ids of the test problems, then one line
per run. Lines of several files may be joined (`zcat a b`): of two lines about one run the later one counts.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from hacrl.analysis.compare.outcomes import Outcomes, Summary, read_run
from hacrl.analysis.compare.packing import pack_evaluations, unpack_evaluations
from hacrl.analysis.compare.plan import Plan, PlannedRun, refuse_other_settings
from hacrl.printable import printable
from hacrl.runs.files import StorageError, make_directory, open_regular, write_atomic
from hacrl.runs.json_files import parse_json
from hacrl.runs.reader import RunReader

SUFFIX = ".jsonl.gz"
FEWEST_SEEDS = 2
LARGEST = 256 * 2**20
"""Bytes of an unpacked file, far above what any plan writes: a damaged file does not fill the memory."""

Key = tuple[str, int]
"""Method and seed."""


class _AgentCosts(BaseModel):
    """Of an agent's summary, besides its evaluations."""

    model_config = ConfigDict(strict=True, extra="forbid")
    model: str
    rollouts: int
    generated_tokens: int
    trained_tokens: int
    updates: int
    retired: str | None
    drift: dict[str, float] = {}
    """How far it has moved from its start, if that was measured."""


class _Line(BaseModel):
    """The outcome of a run."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    method: str
    seed: int
    commit: str | None
    machine: str
    versions: dict[str, str]
    dtypes: dict[str, str]
    steps: int
    seconds: float
    cpu_seconds: float
    """Of training steps."""
    agents: dict[str, _AgentCosts]
    before: dict[str, Any]
    """As `pack_evaluations` writes it."""
    after: dict[str, Any]
    during: dict[str, Any]
    """By step."""
    metrics: dict[str, float] = {}
    """Means over the last steps: lengths, ratios, the gate and so on."""


@dataclass(frozen=True, slots=True)
class MadeWith:
    """What runs were made with."""

    versions: dict[str, str]
    """Of packages, in the first run."""
    commits: list[str]
    machines: list[str]
    seconds: float
    """Of all runs together."""


@dataclass
class DataFile:
    """The outcomes of one setting."""

    path: Path
    settings: dict[str, Any] = field(default_factory=lambda: {"recipes": {}, "faults": {}})
    problems: dict[str, list[str]] = field(default_factory=dict)
    """Task -> the ids of its test problems, in the order of the outcomes."""
    runs: dict[Key, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> DataFile:
        """The file's contents; empty if there is no file."""
        found = cls(path)
        if os.path.lexists(path):
            for number, line in enumerate(_read(path).splitlines(), start=1):
                try:
                    found._take(parse_json(line))
                except (ValueError, KeyError, TypeError) as error:
                    reason = printable(str(error), 300)
                    message = f"{path}, line {number}: not an outcome of `hacrl results`: {reason}"
                    raise StorageError(message) from error
        return found

    def _take(self, line: Any) -> None:
        if "method" in line:
            run = _Line.model_validate(line)
            self.runs[run.method, run.seed] = line
            return
        for key in self.settings:
            self.settings[key] |= line[key]
        for task, ids in line["problems"].items():
            self._same_problems(task, ids)

    def _same_problems(self, task: str, ids: list[str]) -> None:
        if self.problems.setdefault(task, ids) != ids:
            raise ValueError(
                f"{self.path} has outcomes on other test problems of {task}: the task has changed since; "
                "use another --page, or delete the file to run everything again"
            )

    def accept(self, plan: Plan) -> None:
        """Note the plan's settings; those of methods that have outcomes must be the same."""
        recipes, faults = plan.plain_settings()
        tried = {method for method, _ in self.runs}
        earlier = {
            key: {method: kept for method, kept in values.items() if method in tried}
            for key, values in self.settings.items()
        }
        refuse_other_settings(self.path, earlier, recipes, faults)
        self.settings = {
            "recipes": {**self.settings["recipes"], **recipes},
            "faults": {**self.settings["faults"], **faults},
        }

    @property
    def dtypes(self) -> dict[str, str]:
        """What the agents computed in."""
        return {name: dtype for line in self.runs.values() for name, dtype in line["dtypes"].items()}

    def has(self, run: PlannedRun) -> bool:
        """Whether the outcome of a run is known."""
        return (run.method, run.seed) in self.runs

    def add(self, run: PlannedRun, commit: str | None, machine: str) -> None:
        """Take over the outcome of a finished run, and write the file."""
        reader, summary = RunReader(run.directory.path), read_run(run)
        agents = summary["agents"]
        for agent in agents.values():
            for task, evaluation in agent["after"].items():
                self._same_problems(task, evaluation["problems"]["ids"])
        self.runs[run.method, run.seed] = {
            "method": run.method,
            "seed": run.seed,
            "commit": commit,
            "machine": machine,
            "versions": reader.versions,
            "dtypes": reader.dtypes,
            **{key: round(summary[key], 2) for key in ("steps", "seconds", "cpu_seconds")},
            "agents": {
                name: {key: agent[key] for key in _AgentCosts.model_fields if key in agent}
                for name, agent in agents.items()
            },
            "before": pack_evaluations({name: agent["before"] for name, agent in agents.items()}),
            "after": pack_evaluations({name: agent["after"] for name, agent in agents.items()}),
            "during": {str(step): pack_evaluations(found) for step, found in summary["during"].items()},
            "metrics": summary["metrics"],
        }
        self.write()

    def forget(self, method: str) -> None:
        """Drop the outcomes of a method, to run it again."""
        for key in [key for key in self.runs if key[0] == method]:
            del self.runs[key]

    def made_with(self, plan: Plan) -> MadeWith:
        """Of the runs of a plan."""
        lines = [self.runs[method, seed] for method in plan.recipes for seed in plan.seeds]
        return MadeWith(
            versions=lines[0]["versions"],
            commits=list(dict.fromkeys(line["commit"] for line in lines if line["commit"])),
            machines=list(dict.fromkeys(line["machine"] for line in lines)),
            seconds=sum(line["seconds"] for line in lines),
        )

    def write(self) -> None:
        """Replace the file; the same contents give the same bytes."""
        make_directory(self.path.parent)
        head = {**self.settings, "problems": self.problems}
        lines = [head, *(self.runs[key] for key in sorted(self.runs))]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        write_atomic(self.path, gzip.compress(text.encode(), mtime=0))

    def outcomes(self, plan: Plan) -> Outcomes:
        """Of a plan whose runs are all here."""
        return Outcomes(plan, {m: [self._summary(m, seed) for seed in plan.seeds] for m in plan.recipes})

    def _summary(self, method: str, seed: int) -> Summary:
        try:
            return self._unpacked(self.runs[method, seed])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"{self.path}: the outcome of {method} with seed {seed} is damaged") from error

    def _unpacked(self, line: Mapping[str, Any]) -> Summary:
        """As `summary.json` of the run, as far as comparisons read it."""
        before, after = (unpack_evaluations(line[when], self.problems) for when in ("before", "after"))
        agents = {
            name: {**agent, "before": before.get(name, {}), "after": after[name]}
            for name, agent in line["agents"].items()
        }
        during = {
            int(step): unpack_evaluations(found, self.problems) for step, found in line["during"].items()
        }
        return {**line, "agents": agents, "during": during}


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as packed, gzip.open(packed) as file:
            text = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(f"{path} is not a gzip file of `hacrl results`: {error}") from error
    if len(text) > LARGEST:
        raise StorageError(f"{path} holds more than {LARGEST:,} bytes: it is not a file of `hacrl results`")
    return text


def data_file(folder: Path, setting: str) -> DataFile:
    """The outcomes of a setting in a directory."""
    return DataFile.read(folder / f"{setting}{SUFFIX}")


def complete_part(plan: Plan, done: Iterable[Key]) -> Plan | None:
    """The largest part of a plan that is balanced: the same seeds of every method; None if there is none.

    A plan that was stopped has some methods with more seeds than others. Seeds count in the plan's order,
    and of two parts with as many runs the one with more methods is taken.
    """
    done = set(done)
    reached = {method: len(leading_seeds(plan, method, done)) for method in plan.recipes}
    parts = [
        (seeds, [method for method, count in reached.items() if count >= seeds])
        for seeds in range(FEWEST_SEEDS, len(plan.seeds) + 1)
    ]
    seeds, methods = max(parts, key=lambda part: (part[0] * len(part[1]), len(part[1])), default=(0, []))
    return plan.part(methods, plan.seeds[:seeds]) if methods else None


def leading_seeds(plan: Plan, method: str, done: set[Key]) -> tuple[int, ...]:
    """The first seeds of a plan, as far as the method has them without a gap."""
    return tuple(takewhile(lambda seed: (method, seed) in done, plan.seeds))
