"""Runs command lines in forks of one warm process: `python -m fuzz.worker` answers requests line by line.

Starting an interpreter and importing torch takes seconds, a fork milliseconds. Every command line still has a
process of its own: it can hang, fill its memory or be killed without harm to the next one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import re
import resource
import select
import signal
import sys
import threading
import time
import traceback
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

MEMORY = 3 * 2**30
"""What a command may allocate beyond what this process holds."""
LARGEST_FILE = 2**28
OPTIONAL = re.compile(r"vllm|ray|redis|__main__")
"""Modules that need an extra, or run something when they are imported."""

LATE = ("peft", "rich._emoji_codes", "transformers.models.llama.modeling_llama", "typer.rich_utils")
"""What commands import on their way."""


def serve() -> None:
    """Read requests from standard input until it ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    _import_everything()
    gc.collect()
    gc.freeze()  # the collector would copy every page of a fork
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        replies.write(json.dumps(_run(**json.loads(line))) + "\n")
        replies.flush()


def _import_everything() -> None:
    import hacrl

    for module in pkgutil.walk_packages(hacrl.__path__, "hacrl."):
        if not OPTIONAL.search(module.name):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)


def _run(argv: list[str], directory: str, deadline: float, visit: bool) -> dict[str, Any]:
    """The exit code (negative: the signal that ended it), and whether the deadline passed."""
    child = os.fork()
    if child == 0:
        _child(argv, Path(directory), visit)
    descriptor = os.pidfd_open(child)
    ended = bool(select.select([descriptor], [], [], deadline)[0])
    os.close(descriptor)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what the command has started and left behind
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "hangs": not ended}


def _child(argv: list[str], directory: Path, visit: bool) -> None:
    """Never returns: the command's exit code is the process's."""
    code = 70
    try:
        os.setpgid(0, 0)
        _redirect(directory)
        _limit(resource.RLIMIT_AS, _memory_in_use() + MEMORY)
        _limit(resource.RLIMIT_FSIZE, LARGEST_FILE)
        os.chdir(directory / "here")
        sys.argv = ["hacrl", *argv]
        if visit:
            threading.Thread(target=_visit, args=(directory / "stdout",), daemon=True).start()
        code = _main()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _main() -> int:
    from hacrl.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _redirect(directory: Path) -> None:
    for number, name in ((0, os.devnull), (1, directory / "stdout"), (2, directory / "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(name, flags), number)


def _limit(kind: int, most: int) -> None:
    resource.setrlimit(kind, (most, most))


def _memory_in_use() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _visit(printed: Path) -> None:
    """What a browser does with `hacrl watch`, and then Ctrl-C."""
    address = None
    while not address:
        time.sleep(0.01)
        address = re.search(r"http://\S+/", printed.read_text())
    try:
        for page in ("", "data.json"):
            with urllib.request.urlopen(address[0] + page) as reply:
                reply.read()
    except Exception:
        traceback.print_exc()
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    serve()
