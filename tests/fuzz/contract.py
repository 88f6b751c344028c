"""What every command promises, whatever it is given: `broken` says which part of it does not hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

FRAME = re.compile("[─│╭╮╰╯ ]+")
"""What typer draws around messages."""
DEADLINE = 20.0
LONGEST_MESSAGE = 4000
NOT_A_NUMBER = re.compile(r"(?<![\w.'\"/-])[-+]?(nan|inf|infinity)(?![\w.'\"/-])", re.IGNORECASE)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def nothing(here: Path) -> None:
    """The case needs no files of its own."""


@dataclass(frozen=True)
class Case:
    """One command line with one mistake, or with one odd thing that may or may not be one."""

    what: str
    argv: tuple[str, ...]
    names: tuple[str, ...]
    """The message has to contain one of them: the key, the file, the option."""
    prepare: Callable[[Path], object] = nothing
    """Writes files into the working directory."""
    refused: bool = False
    """Whether it is a mistake for certain: exit code 0 is wrong then."""
    codes: tuple[int, ...] = (0, 2)
    visit: bool = False
    """For `hacrl watch`: visit its page, then press Ctrl-C."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended, or was ended."""

    code: int
    hangs: bool
    stdout: str
    stderr: str


class Worker:
    """Runs cases, one after the other, each in a fork of one process and in a directory of its own."""

    def __init__(self, shared: Path) -> None:
        self.shared = shared
        """What all cases read and none may change; the cases are in directories beside it."""
        self._case = shared.parent / "case"
        tests = Path(__file__).parents[1]
        environment = {
            **os.environ,
            "PYTHONPATH": str(tests),
            "HOME": str(shared / "home"),
            "XDG_CACHE_HOME": str(shared / "home"),
            "COLUMNS": "2000",
            "PYTHONWARNINGS": "ignore",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._replies = self._process.stdin, self._process.stdout
        assert self._replies.readline() == "ready\n"

    def close(self) -> None:
        self._requests.close()
        self._replies.close()
        self._process.wait()

    def check(self, cases: Iterable[Case]) -> None:
        """Run the cases; the error lists all that broke the contract, each with its command line."""
        failures = [failure for case in cases if (failure := self.failure(case))]
        assert not failures, f"{len(failures)} broke the contract:\n" + "\n".join(failures)

    def failure(self, case: Case) -> str | None:
        """What is wrong, or None."""
        here = self._case / "here"
        here.mkdir(parents=True)
        try:
            case.prepare(here)
            before, special = snapshot(self.shared), not_regular(here)
            ended = self.run(case.argv, self._case, visit=case.visit)
            wrong = broken(case, ended)
            if not wrong and (changed := snapshot(self.shared) ^ before):
                wrong = f"files outside its directory changed: {sorted(changed)}"
            if not wrong and (lost := special - not_regular(here)):
                wrong = f"something that is no regular file was replaced: {sorted(lost)}"
        finally:
            shutil.rmtree(self._case)
        if not wrong:
            return None
        command = " ".join(word if len(word) < 200 else f"{word[:200]}..." for word in case.argv)
        return f"- {case.what}: hacrl {command!r}\n    {wrong}\n    {ended.stderr[-700:]!r}"

    def run(self, argv: Sequence[str], directory: Path, *, visit: bool = False) -> Ended:
        """Run one command line in `directory/here`."""
        request = {"argv": argv, "directory": str(directory), "deadline": DEADLINE, "visit": visit}
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        reply = json.loads(self._replies.readline())
        printed = {
            name: (directory / name).read_text(encoding="utf-8", errors="replace")
            for name in ("stdout", "stderr")
        }
        return Ended(**reply, **printed)


def broken(case: Case, ended: Ended) -> str | None:
    """The part of the contract that does not hold."""
    code, stdout, stderr = ended.code, ended.stdout, ended.stderr
    if ended.hangs:
        return f"still running after {DEADLINE:g} s"
    if "Traceback" in stdout + stderr:
        return "a traceback"
    if code not in case.codes:
        return f"exit code {code}, expected one of {case.codes}"
    if case.refused and code == 0:
        return "accepted"
    if code and not stderr.strip():
        return "exit code without a message on stderr"
    message = FRAME.sub(" ", stderr)
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters"
    if found := CONTROL.search(stdout + stderr):
        return f"a control character in the output: {found[0]!r}"
    if code == 2 and not any(name in message or _escaped(name) in message for name in case.names):
        return f"the message names none of {case.names}"
    if code == 0 and (found := NOT_A_NUMBER.search(stdout)):
        return f"{found[0]!r} in the output: {stdout[max(0, found.start() - 80) : found.end() + 20]!r}"
    return None


def _escaped(name: str) -> str:
    return name.encode("unicode_escape").decode()


def snapshot(directory: Path) -> set[tuple[str, int, int, int]]:
    """Every file with size, time and kind."""
    found = set()
    for folder, _, files in os.walk(directory):
        for name in [".", *files]:
            status = os.lstat(os.path.join(folder, name))
            mark = (status.st_mtime_ns, status.st_size, status.st_mode)
            found.add((os.path.join(folder, name), *mark))
    return found


def not_regular(directory: Path) -> set[tuple[str, int]]:
    """Pipes, sockets, devices and links, by name and kind."""
    found = ((path.name, stat.S_IFMT(path.lstat().st_mode)) for path in directory.iterdir())
    return {(name, kind) for name, kind in found if kind not in (stat.S_IFREG, stat.S_IFDIR)}
