"""Reward functions that misbehave in every way; each completion names what to do."""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction


class Raises:
    """A reward that raises whatever it was made with as soon as it is read."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error

    def __iter__(self) -> Iterator[float]:
        raise self.error


class Unreadable(Exception):
    """An exception that cannot even be described."""

    def __str__(self) -> str:
        raise SystemExit("unreadable")


ERRORS: dict[str, type[BaseException]] = {
    "exits": SystemExit,
    "interrupts": KeyboardInterrupt,
    "ends its generator": GeneratorExit,
    "runs out of stack": RecursionError,
    "is unreadable": Unreadable,
    "has escape sequences": lambda: RuntimeError("\x1b[31m \ud800 \r\n"),  # type: ignore[dict-item]
    "runs out of memory": MemoryError,
}
"""Raised by the function itself."""

VALUES: dict[str, Callable[[], object]] = {
    "a huge integer": lambda: 10**400,
    "float raises": lambda: Raises(ValueError("no float")),
    "float exits": lambda: Raises(SystemExit(3)),
    "float interrupts": lambda: Raises(KeyboardInterrupt()),
    "bytes": lambda: b"1.0",
    "a complex number": lambda: 1j,
    "a nested list": lambda: [[1.0]],
    "a dictionary": lambda: {"reward": 1.0},
    "a class": lambda: Raises,
    "a signalling NaN": lambda: Decimal("sNaN"),
    "a huge fraction": lambda: Fraction(10**400, 1),
}
"""Returned as the reward of one response."""

RESULTS: dict[str, Callable[[int], object]] = {
    "a generator": lambda size: (1.0 for _ in range(size)),
    "a generator that raises": lambda size: (1 / 0 for _ in range(size)),
    "a generator without an end": lambda size: itertools.repeat(1.0),
    "an object that raises": lambda size: Raises(SystemExit(4)),
    "a number": lambda size: 1.0,
    "text": lambda size: "ab",
    "a dictionary": lambda size: dict.fromkeys("ab", 1.0),
    "nothing": lambda size: None,
    "a list that contains itself": lambda size: itself(),
    "a range": lambda size: range(size),
}
"""Returned for a whole batch."""


def itself() -> list[object]:
    members: list[object] = [1.0]
    members.append(members)
    return members


def act(what: str) -> object:
    if what in ERRORS:
        raise ERRORS[what]()
    if what in VALUES:
        return VALUES[what]()
    if what == "sleep":
        time.sleep(1000)
    if what == "spin":
        while True:
            pass
    if what == "fork bomb":
        while True:
            try:
                os.fork()
            except OSError:
                continue
    if what == "fork and both return":
        os.fork()
    if what == "leave a daemon behind" and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    if what == "10 GB":
        return float(len(bytearray(10 * 2**30)))
    if what == "exit":
        os._exit(0)
    if what == "flood":
        for _ in range(20_000):
            print("x" * 1000)
            sys.stderr.write("y" * 1000)
    if what == "raise":
        raise ValueError("z" * 50_000_000)
    answers: dict[str, object] = {"nan": math.nan, "infinity": math.inf, "text": "1.0", "none": None}
    return answers.get(what, 1.0 if what == "right" else 0.5)


def rewards(completions: list[str], **columns: object) -> object:
    values = [act(what) for what in completions]
    return values[1:] if "wrong length" in completions else values


def results(completions: list[str], **columns: object) -> object:
    """The last completion says what is returned for the whole batch."""
    return RESULTS[completions[-1]](len(completions))


def single(what: str) -> object:
    return act(what)


async def slowly(completions: list[str], **columns: object) -> list[float]:
    import asyncio

    await asyncio.sleep(0)
    return [float(len(text)) for text in completions]
