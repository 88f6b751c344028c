"""A worker process: answers calls of one function, one JSON line each, inside its limits.

It splits in two. The supervisor runs no code but ours: it adopts orphaned descendants and kills everything
when the trainer goes away. Its child is isolated, loads the function and answers.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, TextIO

from hacrl.rewards import isolation
from hacrl.rewards.limits import Limits, allow_cpu_seconds, apply_limits
from hacrl.rewards.processes import kill_descendants, reap, tasks_of_this_user

MAX_DETAIL = 300
"""Characters of an exception's message that are passed on."""


def main() -> None:
    """Run as `python -m hacrl.rewards.worker JOB`; the job names the function, the limits and the sockets."""
    job = json.loads(sys.argv[1])
    limits = Limits(**job["limits"])
    sys.path[:] = job["path"]
    number = os.getpid()
    isolation.adopt_orphans()
    has_namespace = isolation.new_process_namespace()
    if os.fork() != 0:
        supervise(job["lifeline"], job["channel"])
    os.close(job["lifeline"])
    with socket.socket(fileno=job["channel"]) as channel, channel.makefile("rw", encoding="utf-8") as lines:
        report = isolate(limits, has_namespace, job["scratch"], number)
        serve(lines, job["function"], limits, report)


def supervise(lifeline: int, channel: int) -> None:
    """Wait until the trainer closes its end of the lifeline, or dies; then kill everything below, and end."""
    os.close(channel)
    while not select.select([lifeline], [], [], 1.0)[0]:
        reap()
    kill_descendants(os.getpid())
    reap()
    os._exit(0)


def isolate(limits: Limits, has_namespace: bool, scratch: str, number: int) -> dict[str, bool]:
    """Shut this process in; the report says which walls stand."""
    silence()
    report = {"processes": has_namespace}
    if limits.confined:
        report |= {"network": isolation.leave_network(), "files": isolation.protect_files(scratch)}
        os.chdir(scratch)
    report["user"] = isolation.drop_privileges(number)
    isolation.forbid_new_privileges()
    isolation.die_with_parent(signal.SIGKILL)
    apply_limits(limits, others=0 if has_namespace else tasks_of_this_user())
    return report


def silence() -> None:
    """What the function prints goes nowhere, and it has nothing to read."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)


def serve(lines: TextIO, path: str, limits: Limits, report: dict[str, bool]) -> None:
    """Load the function, say so, and answer calls until the other end is closed."""
    try:
        function = load(path)
    except BaseException as error:
        send(lines, {"failed": describe(error)})
        return
    send(lines, {"ready": report})
    worker = os.getpid()
    for line in lines:
        call = json.loads(line)
        allow_cpu_seconds(limits.deadline)
        reply = answer(function, call["arguments"])
        if os.getpid() != worker:  # the function forked, and its child came back as well
            os._exit(0)
        send(lines, {"id": call["id"], **reply})


def load(path: str) -> Callable[..., Any]:
    """Import `module:function`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def answer(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the function; whatever it does short of ending this process becomes part of the reply."""
    try:
        value = function(**arguments)
        if inspect.isawaitable(value):
            value = finish(value)
        return {"value": plain(value)}
    except MemoryError as error:
        return {"cause": "memory", "detail": describe(error)}
    except BaseException as error:
        return {"cause": "exception", "detail": describe(error)}


def finish(value: Any) -> Any:
    """The result of an async function."""
    import asyncio  # slow to import, and most functions are not async

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def plain(value: Any) -> Any:
    """Numbers and lists of numbers as JSON knows them; what is neither becomes the name of its type."""
    if value is None:
        return None
    if hasattr(value, "__len__") and not isinstance(value, str | bytes | dict):
        return [plain(member) for member in value]
    with contextlib.suppress(TypeError, ValueError):
        return float(value) if not isinstance(value, str | bytes) else type(value).__name__
    return type(value).__name__


def describe(error: BaseException) -> str:
    """The exception's type and the beginning of its message."""
    try:
        message = str(error)[:MAX_DETAIL]
    except BaseException:
        message = "(its message cannot be made)"
    return f"{type(error).__name__}: {message}"


def send(lines: TextIO, reply: dict[str, Any]) -> None:
    """One JSON line to the trainer."""
    lines.write(json.dumps(reply) + "\n")
    lines.flush()


if __name__ == "__main__":
    main()
