"""A run's link to a pool: what its agents drew goes there, what others drew comes from there.

What a step takes is kept in `RUN/pool/step_000001.jsonl` before anybody trains on it: a resumed run takes the
same again, whatever the pool has then. The responses it draws again are written again, under the same ids,
and readers drop them.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.pool import Entry, PoolClient, PoolKey, Reader, open_place, pool_key, sign
from hacrl.pool.entry import is_name, read_entry
from hacrl.pool.places import SharedPoolError
from hacrl.recipe import Recipe, RecipeError
from hacrl.recipe.problems import Problem
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError, make_directory, read_bytes, write_atomic, write_json
from hacrl.runs.json_files import parse_json, read_json
from hacrl.sharing.pooled import Confirmed, KnownPrompts, as_entries, confirm, restored
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Team
from hacrl.types import Prompt

NAME_FILE = "writer.json"


class PoolLink:
    """Exchanges responses once per step."""

    def __init__(self, client: PoolClient, key: PoolKey, writer: str, directory: RunDirectory) -> None:
        self._client = client
        self._key = key
        self._writer = writer
        self._directory = directory
        self._known: KnownPrompts | None = None

    @classmethod
    def open(cls, recipe: Recipe, directory: RunDirectory) -> PoolLink | None:
        """The link that the recipe asks for, with the name under which this run writes; None: no link."""
        settings = recipe.exchange.pool
        if settings is None:
            return None
        try:
            key = pool_key(settings.key_env)
        except ValueError as error:
            raise RecipeError("recipe", [Problem("exchange.pool.key_env", str(error))]) from error
        password = None
        if settings.password_env is not None:
            password = os.environ.get(settings.password_env)
            if not password:
                message = f"the environment variable {settings.password_env} is not set"
                raise RecipeError("recipe", [Problem("exchange.pool.password_env", message)])
        try:
            place = open_place(settings.url, password=password, seconds=settings.wait_seconds)
        except SharedPoolError as error:
            raise RecipeError("recipe", [Problem("exchange.pool.url", str(error))]) from error
        writer = _writer(directory.pool / NAME_FILE)
        reader = Reader(key, max_staleness=settings.max_staleness, quota=settings.quota)
        client = PoolClient(place, key, reader, writer, wait_seconds=settings.wait_seconds)
        return cls(client, key, writer, directory)

    def begin(self, recipe: Recipe, step: int) -> None:
        """Continue after a step of this run; before the first, wait for the others."""
        settings = recipe.exchange.pool
        assert settings is not None, "there is a link"
        if step == 0:
            self._client.join(settings.wait_for, settings.start_seconds)
        elif self._directory.pool_file(step).exists():
            self._client.load_state_dict(self._read(step)[0])

    def exchange(self, team: Team, prompts: Sequence[Prompt], record: StepRecord) -> Confirmed:
        """Send the step's responses and take others'; a step that is repeated takes the same again."""
        sent = self._sent(team, prompts, record)
        record.pool["sent"] = len(sent)
        if self._directory.pool_file(record.step).exists():
            self._client.put(sent)
            state, counts, entries = self._read(record.step)
            self._client.load_state_dict(state)
            found = restored(entries, self._prompts(team), record.step)
            record.pool.update(counts)
            return found
        taken = self._client.exchange(sent)
        settings = team.recipe.exchange.pool
        assert settings is not None, "there is a link"
        found = confirm(
            taken.entries,
            self._prompts(team),
            lambda asked, texts: _rewards(team, asked, texts),
            step=record.step,
            trust=settings.trust,
            needs_logps=team.method.needs_logps,
        )
        refused = taken.refused + found.refused
        counts = Counter({f"refused/{cause}": count for cause, count in sorted(refused.items())})
        counts["taken"] = len(found.entries)
        record.pool.update(counts)
        if taken.trouble:
            record.notices += (
                f"The pool {settings.url} is not available: {taken.trouble}. Training goes on without it.",
            )
        self._write(record.step, counts, found.entries)
        return found

    def close(self) -> None:
        """Send what is outstanding, if the pool answers, and disconnect."""
        self._client.flush()
        self._client.close()

    def _sent(self, team: Team, prompts: Sequence[Prompt], record: StepRecord) -> list[Entry]:
        by_id = {prompt.id: prompt for prompt in prompts}
        verifier = team.recipe.reward.verifier or team.task.verifier
        functions = [function.path for function in team.recipe.reward.functions]
        return as_entries(
            record.trajectories,
            by_id,
            task=team.task.name,
            verifier="+".join(functions) or verifier,
            writer=self._writer,
        )

    def _prompts(self, team: Team) -> KnownPrompts:
        if self._known is None:
            tests = [prompt for task in team.evaluation_tasks for prompt in task.prompts]
            self._known = KnownPrompts(team.task.train, [*team.task.test, *tests])
        return self._known

    def _write(self, step: int, counts: Mapping[str, int], entries: Sequence[Entry]) -> None:
        head = {"state": self._client.state_dict(), "counts": counts}
        lines = [json.dumps(head).encode(), *(sign(entry, self._key) for entry in entries)]
        make_directory(self._directory.pool)
        write_atomic(self._directory.pool_file(step), b"".join(line + b"\n" for line in lines))

    def _read(self, step: int) -> tuple[Mapping[str, Any], Counter[str], list[Entry]]:
        """What a step took: the state after it, its counts, and entries whose signatures are right."""
        path = self._directory.pool_file(step)
        first, *lines = read_bytes(path).splitlines()
        try:
            head = parse_json(first)
            found = [read_entry(line, self._key) for line in lines]
            state, counts = head["state"], Counter({str(key): int(n) for key, n in head["counts"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{path} is not what a step took from a pool: {error}") from error
        if not all(signed for _, signed in found):
            raise StorageError(
                f"{path} has an entry whose signature is wrong: was exchange.pool.key_env changed?"
            )
        return state, counts, [entry for entry, _ in found]


def _rewards(team: Team, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float | None]:
    """The rewards by this run's own verifier; others' tokens are not known."""
    scores = team.rewarder.score(prompts, texts, [()] * len(texts), limit_unscorable=False)
    return [score.reward for score in scores]


def _writer(path: Path) -> str:
    """The name under which this run writes, always the same."""
    if not path.exists():
        make_directory(path.parent)
        write_json(path, {"writer": uuid.uuid4().hex})
    writer = read_json(path).get("writer")
    if not is_name(writer):
        raise StorageError(f"{path} does not name a writer: delete it, and the run takes another name")
    return str(writer)
