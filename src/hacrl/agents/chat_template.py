"""Chat templates are programs of whoever made the model: they are rendered in a process of their own.

Jinja's sandbox keeps a template away from files and Python's internals, but not from endless loops or all of
the memory. One process for all templates renders them with transformers' own function. It is killed if a
prompt takes longer than `DEADLINE`, may use `hacrl.agents.chat_template_process.MEMORY` bytes, and is started
again for the next prompt.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from hacrl.printable import printable

DEADLINE = 10.0
"""Seconds for one prompt; templates take about a millisecond."""
START = 120.0
"""Seconds for the process to start; it imports a part of transformers."""
LONGEST_MESSAGE = 300


class TemplateFailed(ValueError):
    """A chat template raised an error, or was stopped; the message is safe to print."""


def render(template: object, messages: Sequence[Mapping[str, str]], variables: Mapping[str, object]) -> str:
    """The text of a conversation, up to the beginning of the assistant's next message."""
    global _renderer
    call = {"template": template, "messages": messages, "variables": variables}
    with _lock:
        if _renderer is None:
            _renderer = _Renderer()
        try:
            reply = _renderer.ask(call, DEADLINE)
        except BaseException:
            stop()
            raise
    if "error" in reply:
        raise TemplateFailed(printable(reply["error"], LONGEST_MESSAGE))
    return str(reply["text"])


def stop() -> None:
    """End the process, if there is one; the next prompt starts another."""
    global _renderer
    if _renderer is not None:
        _renderer.kill()
        _renderer = None


class _Renderer:
    """The process; one call at a time."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("chat_template_process.py")
        # Isolated from the working directory and the environment; it imports what is installed.
        packages = [path for path in sys.path if os.path.isabs(path)]
        self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and file)
            [sys.executable, "-I", str(script), json.dumps(packages)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the trainer, which finishes its step
        )
        self._receive(START)

    def ask(self, call: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Its reply."""
        assert self._process.stdin is not None
        try:
            line = json.dumps(call).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateFailed(f"its variables are not plain JSON values: {error}") from error
        with suppress(BrokenPipeError):  # reading finds out how the process ended
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return self._receive(seconds)

    def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        pipe, until, line = self._process.stdout.fileno(), time.monotonic() + seconds, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TemplateFailed(f"it did not end within {seconds:g} seconds and was stopped")
            part = os.read(pipe, 1 << 16)
            if not part:
                code = self._process.wait()
                raise TemplateFailed(f"the process that rendered it ended with exit code {code}")
            line += part
        reply: dict[str, Any] = json.loads(line)
        return reply

    def kill(self) -> None:
        """End it and wait until it is gone."""
        with self._process:
            self._process.kill()

    def forget(self) -> None:
        """In a forked child: the process belongs to the parent."""
        self._process.returncode = 0  # not ours to wait for
        nowhere = os.open(os.devnull, os.O_RDWR)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.dup2(nowhere, pipe.fileno())  # what is still buffered must not reach it twice
        os.close(nowhere)


_renderer: _Renderer | None = None
_lock = Lock()


def _forget() -> None:
    global _renderer, _lock
    _lock = Lock()  # another thread may have held it during the fork
    if _renderer is not None:
        _renderer.forget()
        _renderer = None


os.register_at_fork(after_in_child=_forget)
atexit.register(stop)
