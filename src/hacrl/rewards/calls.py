"""One call of a verifier or reward function: whatever it does, the result is plain numbers or a cause.

The worker processes and the trainer both make their calls with `run_call`, so that a function has the same
causes in either place.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from hacrl.printable import printable
from hacrl.rewards.scores import Outcome


def run_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Outcome:
    """Call the function; the outcome holds its value as `plain` numbers, or the cause of its failure.

    Everything that runs the function's code is in here: it may return a generator that raises, or an object
    whose `__float__` does.
    """
    try:
        value = function(**arguments)
        if inspect.isawaitable(value):
            value = _finish(value)
        return Outcome(plain(value, most=len(arguments.get("completions", ())) + 1))
    except MemoryError as error:
        return Outcome(None, "memory", describe(error))
    except BaseException as error:  # also SystemExit: the function may raise anything
        return Outcome(None, "exception", describe(error))


def call_here(function: Callable[..., Any], calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Call the function in this process, once per mapping of keyword arguments."""
    outcomes = []
    with _noting_interrupts() as interrupts:
        for arguments in calls:
            outcomes.append(run_call(function, arguments))
            if interrupts:
                raise KeyboardInterrupt
    return outcomes


@contextlib.contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Tell the user's Ctrl-C, which must end the program, from a KeyboardInterrupt that a function raises."""
    noted: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted  # Ctrl-C does not raise an exception here
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def plain(value: Any, most: int) -> Any:
    """A number, or a list of numbers, as floats; None stays, anything else becomes the name of its type.

    At most `most` numbers of a list are read: a generator may have no end.
    """
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if several and getattr(value, "ndim", 1) > 0:  # a tensor of no dimensions is one number
        return [_number(member) for member in itertools.islice(value, most)]
    return _number(value)


def _number(value: Any) -> float | str | None:
    if value is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(value, str | bytes):
            return float(value)
    return type(value).__name__


def _finish(value: Awaitable[Any]) -> Any:
    """Wait for an async function, on a thread of its own: the caller's may have a running event loop."""
    import asyncio  # slow to import, and most functions are not async

    async def wait() -> Any:
        return await value

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, wait()).result()


def describe(error: BaseException) -> str:
    """The exception's type and the beginning of its message."""
    try:
        return printable(f"{type(error).__name__}: {error}", 300)
    except BaseException:
        return "an exception whose message cannot be read"
