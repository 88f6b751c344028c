"""What sharing through a pool costs: one exchange beside a step, and a large pool that is read on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.our_step import BEST, OurSide
from benchmarks.timing import Spread
from benchmarks.workload import NO_LEARNING, SIZES, Workload
from hacrl.analysis.tables import TextTable
from hacrl.pool import Entry, Place, PoolClient, PoolKey, Reader, open_place, sign
from hacrl.pool.places import read_new
from hacrl.sharing.pooled import KnownPrompts, confirm
from hacrl.types import Prompt

KEY = PoolKey(b"only for this benchmark")
AGENTS, RESPONSES, TOKENS, LETTERS = 8, 512, 1024, 4096
"""Trainers; responses of each in a step; tokens of a response, and its length as text."""
SAMPLES = 8
PART = 8
"""The step is measured with this part of the responses: a smaller batch is no faster per response."""
WRITERS, NEW = 8, 4000
"""Segments of the large pool, and entries that were written since it was read."""


@dataclass(frozen=True)
class PoolCosts:
    """Seconds of one trainer."""

    exchange: Spread
    """Sign and write its responses of a step; read, check and confirm those of the seven others."""
    megabytes: float
    """Read in an exchange."""
    step: float
    """A step of a model of 5.75M parameters, without sharing."""
    share: float
    """Of the exchange in the step."""
    entries: int
    """Of the large pool."""
    reopened: Spread
    """Open it, and read and check what is new."""


def pool(
    entries: Annotated[int, typer.Option(min=NEW, help="Entries of the large pool.")] = 1_000_000,
    url: Annotated[
        str | None, typer.Option(show_default="a new directory", help="Where the exchange goes.")
    ] = None,
    repeats: Repeats = 3,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Time a pool: 8 trainers with 512 responses of 1,024 tokens each, and a directory of a million entries.

    The verifier compares texts; others cost what they cost in the trainer itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        progress("exchanges")
        exchanges, size = measure_exchange(url or f"{folder}/exchange", repeats)
        progress("a step")
        step = measure_step()
        progress(f"a pool of {entries:,} entries")
        reopened = measure_reopening(Path(folder) / "large", entries, repeats)
    found = PoolCosts(exchanges, size / 1e6, step, exchanges.median / step, entries, reopened)
    show([pool_table(found)], found, markdown, json_file)


def measure_exchange(url: str, repeats: int) -> tuple[Spread, int]:
    """Seconds of one trainer's exchange when all others have written theirs, and the bytes it reads."""
    prompts = [Prompt(f"p{n}", f"Question {n}: {'why ' * 50}") for n in range(AGENTS * RESPONSES // SAMPLES)]
    known = KnownPrompts(prompts)
    place = open_place(url)
    reader = Reader(KEY, max_staleness=4, quota=RESPONSES)
    client = PoolClient(place, KEY, reader, "writer0", wait_seconds=600)
    client.join(0, 0)
    seconds, size = [], 0
    for step in range(1, repeats + 1):
        size = 0
        for agent in range(1, AGENTS):
            lines = [sign(entry, KEY) for entry in step_entries(prompts, agent, step)]
            size += sum(map(len, lines))
            place.append(f"writer{agent}", lines)
        own = list(step_entries(prompts, 0, step))
        begun = perf_counter()
        taken = client.exchange(own)
        found = confirm(taken.entries, known, lambda asked, texts: [1.0] * len(texts), step=step)
        seconds.append(perf_counter() - begun)
        if len(found.trajectories) != (AGENTS - 1) * RESPONSES:
            raise RuntimeError(
                f"{len(found.trajectories)} responses arrived: {taken.refused} {found.refused}"
            )
    return Spread.of(seconds), size


def step_entries(prompts: list[Prompt], agent: int, step: int) -> Iterator[Entry]:
    """One trainer's responses of a step, to prompts of its own."""
    first = agent * RESPONSES // SAMPLES
    for prompt in prompts[first : first + RESPONSES // SAMPLES]:
        for sample in range(SAMPLES):
            text = f"{agent} {step} {sample} " + "word " * (LETTERS // 5)
            yield Entry(
                "benchmark",
                prompt.text,
                text,
                1.0,
                "exact",
                f"writer{agent}",
                "agent",
                step,
                sample,
                TOKENS,
                -9.0,
            )


def measure_step() -> float:
    """Seconds of a step of one trainer, from a part of its responses."""
    prompts = RESPONSES // SAMPLES // PART
    work = Workload(
        SIZES["M"],
        eos_hazard=0.0,
        max_new=TOKENS,
        prompts=prompts,
        samples=SAMPLES,
        learning_rate=NO_LEARNING,
    )
    return PART * OurSide(work, BEST).step(0).total


def measure_reopening(directory: Path, entries: int, repeats: int) -> Spread:
    """Seconds to open a pool and read what is new since it was read to its end."""
    place: Place = open_place(str(directory))
    old = [(number, entries // WRITERS - NEW // WRITERS) for number in range(WRITERS)]
    for number, count in old:
        line = sign(_short(number, 0), KEY)
        place.append(f"writer{number}", [line] * count)
    _, cursor = read_new(place, {})
    for number in range(WRITERS):
        place.append(f"writer{number}", [sign(_short(number, n), KEY) for n in range(NEW // WRITERS)])
    seconds = []
    for _ in range(repeats):
        begun = perf_counter()
        found, _ = read_new(open_place(str(directory)), cursor)
        accepted, _ = Reader(KEY, max_staleness=4, quota=NEW).accept(found)
        seconds.append(perf_counter() - begun)
        if len(accepted) != NEW:
            raise RuntimeError(f"{len(accepted)} of {NEW} new entries were read")
    return Spread.of(seconds)


def _short(number: int, sample: int) -> Entry:
    return Entry(
        "benchmark", "1 + 1 =", "It is 2.", 1.0, "exact", f"writer{number}", "agent", 1, sample, 4, -1.0
    )


def pool_table(found: PoolCosts) -> TextTable:
    """As text."""
    rows = [
        (f"exchange: {RESPONSES} responses out, {(AGENTS - 1) * RESPONSES:,} in", f"{found.exchange:.2f} s"),
        ("read in it", f"{found.megabytes:.1f} MB"),
        ("a step without it (5.75M parameters)", f"{found.step:.1f} s"),
        ("share of the step", f"{found.share:.2%}"),
        (f"open {found.entries:,} entries and read {NEW:,} new ones", f"{found.reopened:.2f} s"),
    ]
    return TextTable("A pool in a directory, 8 trainers", ("", "median (range)"), rows)


app = command(pool)

if __name__ == "__main__":
    app()
