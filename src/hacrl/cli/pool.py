"""`hacrl pool`: what a shared pool holds, and whether its entries are right."""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hacrl.cli.common import fail, say, show, user_errors

if TYPE_CHECKING:
    from hacrl.pool import Entry, PoolKey

KEY_VARIABLE = "HACRL_POOL_KEY"
EVERYTHING = 10**9
"""A quota and an age that nothing exceeds."""


def pool(
    url: Annotated[
        str, typer.Argument(help="A directory, redis://HOST:PORT/NUMBER/NAME or s3://BUCKET/PREFIX.")
    ],
    entries: Annotated[bool, typer.Option("--show", help="Show the newest responses.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Exit with 1 if there is a line that a trainer would refuse.")
    ] = False,
    source: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Responses to show, at most.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    key_env: Annotated[
        str | None,
        typer.Option(
            show_default="HACRL_POOL_KEY, if it is set",
            help="Environment variable with the pool's key; without, signatures are not checked.",
        ),
    ] = None,
    password_env: Annotated[
        str | None, typer.Option(show_default="none", help="Environment variable with the password of Redis.")
    ] = None,
) -> None:
    """Show who writes to a pool, how much of it is right, and what a trainer would refuse.

    Whether rewards are right shows only when a trainer verifies them again.
    """
    with user_errors():
        key = _key(key_env, needed=verify)
        contents = _read(url, _password(password_env), key, source, limit)
        if not contents.writers:
            raise ValueError(f"{url} holds no pool: nothing has been written there")
        if source is not None and not contents.newest:
            known = ", ".join(sorted({name for _, name in contents.entries})[:10]) or "no entries"
            raise ValueError(f"--source {source}: not in this pool, which has {known}")
    if as_json:
        _print_json(contents, entries)
    elif entries:
        _print_entries(contents)
    else:
        _print_status(contents)
    if not as_json:
        refused = ", ".join(f"{cause} {count:,}" for cause, count in sorted(contents.refused.items()))
        say(f"{sum(contents.entries.values()):,} entries; refused: {refused or 'none'}")
        if key is None:
            say(f"Signatures were not checked: {KEY_VARIABLE} is not set.")
    if verify and contents.refused:
        fail(f"{url}: {contents.refused.total():,} lines would be refused", code=1)


@dataclass
class _Contents:
    """What is found in a pool, by writer and source."""

    writers: list[str]
    entries: Counter[tuple[str, str]]
    right: Counter[tuple[str, str]]
    versions: dict[tuple[str, str], int]
    refused: Counter[str]
    newest: deque[Entry]


def _key(variable: str | None, *, needed: bool) -> PoolKey | None:
    """The key from the variable that is named, or from the usual one if that is set."""
    from hacrl.pool import pool_key

    if variable is None and not needed and KEY_VARIABLE not in os.environ:
        return None
    try:
        return pool_key(KEY_VARIABLE if variable is None else variable)
    except ValueError as error:
        raise ValueError(f"--key-env: {error}") from error


def _password(variable: str | None) -> str | None:
    if variable is not None and not os.environ.get(variable):
        raise ValueError(f"--password-env: the environment variable {variable} is not set")
    return os.environ[variable] if variable is not None else None


def _read(url: str, password: str | None, key: PoolKey | None, source: str | None, limit: int) -> _Contents:
    from hacrl.pool import Reader, open_place
    from hacrl.pool.places import read_all

    try:
        place = open_place(url, password=password)
    except ValueError as error:
        raise ValueError(f"URL: {error}") from error
    reader = Reader(key, max_staleness=EVERYTHING, quota=EVERYTHING)
    found = _Contents(
        place.segments(), Counter(), Counter(), defaultdict(int), Counter(), deque(maxlen=limit)
    )
    for writer, lines in read_all(place):
        accepted, refused = reader.accept({writer: lines})
        found.refused += refused
        for entry in accepted:
            place_of = writer, entry.source
            found.entries[place_of] += 1
            found.right[place_of] += entry.reward > 0
            found.versions[place_of] = max(found.versions[place_of], entry.version)
            if source is None or entry.source == source:
                found.newest.append(entry)
    place.close()
    return found


def _print_status(found: _Contents) -> None:
    from hacrl.analysis.tables import PlainTable

    table = PlainTable()
    for column in ("writer", "source", "entries", "right", "newest step"):
        table.add_column(column, no_wrap=True)
    for (writer, source), count in sorted(found.entries.items()):
        right = f"{found.right[writer, source] / count:.3f}"
        table.add_row(writer[:40], source, f"{count:,}", right, str(found.versions[writer, source]))
    show(table)


def _print_entries(found: _Contents) -> None:
    from hacrl.analysis.tables import PlainTable

    table = PlainTable()
    for column in ("source", "step", "task", "reward", "verifier", "tokens"):
        table.add_column(column, no_wrap=True)
    for column in ("prompt", "response"):
        table.add_column(column, no_wrap=True, ratio=1)
    for entry in found.newest:
        prompt = entry.prompt if isinstance(entry.prompt, str) else entry.prompt[-1]["content"]
        cells = (entry.source, str(entry.version), entry.task, f"{entry.reward:g}", entry.verifier)
        table.add_row(*cells, str(entry.tokens), prompt, entry.response)
    show(table)


def _print_json(found: _Contents, entries: bool) -> None:
    import json
    from dataclasses import asdict

    if entries:
        for entry in found.newest:
            typer.echo(json.dumps(asdict(entry)))
        return
    for (writer, source), count in sorted(found.entries.items()):
        line = {"writer": writer, "source": source, "entries": count, "right": found.right[writer, source]}
        typer.echo(json.dumps({**line, "newest_step": found.versions[writer, source]}))
    typer.echo(json.dumps({"refused": dict(sorted(found.refused.items()))}))
