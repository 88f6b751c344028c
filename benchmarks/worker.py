"""A module of the benchmarks in a process of its own, which answers one question at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[1]
"""From here `benchmarks` can be imported."""
ANSWER = "answer: "
"""Begins the lines of standard output that are meant for the process that asked."""


class Worker:
    """`python -m module arguments...` with one thread: a line of standard input is a question."""

    def __init__(self, name: str, module: str, *arguments: str) -> None:
        self._name = name
        self._errors = TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cwd=ROOT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def ask(self, question: str) -> dict[str, Any]:
        """Its answer; raises `RuntimeError` with the end of what it wrote to stderr if it has none."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: what it wrote says why
            self._process.stdin.write(f"{question}\n")
            self._process.stdin.flush()
        return self._answer()

    def end(self) -> dict[str, Any]:
        """No more questions: what it says at its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                data: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return data
        self._errors.seek(0)
        raise RuntimeError(f"the process of {self._name} failed:\n{self._errors.read()[-2000:]}")


class NoMoreQuestions(Exception):
    """The process that asked has closed its end."""


def next_question() -> str:
    """In the worker: wait for one."""
    line = sys.stdin.readline()
    if not line:
        raise NoMoreQuestions
    return line.rstrip("\n")


def answer(data: dict[str, Any]) -> None:
    """In the worker: for the process that asked."""
    print(f"{ANSWER}{json.dumps(data)}", flush=True)


def answer_all(find: Callable[[str], dict[str, Any]]) -> None:
    """In the worker: answer every question until there are no more."""
    while True:
        try:
            question = next_question()
        except NoMoreQuestions:
            return
        answer(find(question))
