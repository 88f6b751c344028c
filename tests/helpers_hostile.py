"""Reward functions that misbehave in every way; each completion names what to do."""

from __future__ import annotations

import math
import os
import sys
import time


def act(what: str) -> object:
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


def single(what: str) -> object:
    return act(what)


async def slowly(completions: list[str], **columns: object) -> list[float]:
    import asyncio

    await asyncio.sleep(0)
    return [float(len(text)) for text in completions]
