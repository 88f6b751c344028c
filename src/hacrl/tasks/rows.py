"""Turn the rows of a data set into prompts, and report bad rows."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from hacrl.tasks.task import TaskError
from hacrl.types import Message, Prompt

Row = Mapping[str, Any]
NumberedRow = tuple[str, Row | str]
"""The position of a row in its source ("line 3"), and the row; or, as text, why it could not be read."""

MOST_REPORTED = 10


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Columns:
    """The names of the columns that hacrl reads; every other column is passed on to the reward functions.

    `id` and `kind` are optional; the default id is made of the split and the row number.
    """

    prompt: str = "prompt"
    answer: str = "answer"
    id: str = "id"
    kind: str = "kind"


class BadRow(ValueError):
    """Why one row cannot be used."""


def read_prompts(
    source: str, rows: Iterable[NumberedRow], split: str, columns: Columns, *, answers: bool = True
) -> list[Prompt]:
    """All rows as prompts; if some are bad, one error that lists the first of them with reasons.

    With `answers=False` a row needs no answer.
    """
    prompts: dict[str, Prompt] = {}
    first_seen: dict[str, str] = {}
    problems: list[str] = []
    for where, row in rows:
        try:
            if isinstance(row, str):
                raise BadRow(row)
            prompt = _to_prompt(row, columns, f"{split}-{where.split()[-1]}", answers)
            if prompt.id in prompts:
                raise BadRow(f"id {prompt.id!r} was already used in {first_seen[prompt.id]}")
        except BadRow as bad:
            problems.append(f"{source}, {where}: {bad}")
        else:
            prompts[prompt.id] = prompt
            first_seen[prompt.id] = where
    if problems:
        more = f"\n  and {len(problems) - MOST_REPORTED} more" if len(problems) > MOST_REPORTED else ""
        listed = "\n  ".join(problems[:MOST_REPORTED])
        raise TaskError(f"{source}: {len(problems)} bad row(s)\n  {listed}{more}")
    if not prompts:
        raise TaskError(f"{source}: the data set is empty")
    return list(prompts.values())


def _to_prompt(row: Row, columns: Columns, default_id: str, answer_needed: bool) -> Prompt:
    others = {str(name): value for name, value in row.items()}
    if columns.prompt not in others:
        raise BadRow(f"no column {columns.prompt!r}; there are: {', '.join(others) or 'none'}")
    text = _prompt_text(others.pop(columns.prompt), columns.prompt)
    answer = others.get(columns.answer)
    if answer is not None:
        others["answer"] = answer
    elif answer_needed:
        raise BadRow(
            f"no answer: column {columns.answer!r} is missing or null (allowed with `answers: false`)"
        )
    given_id, kind = others.pop(columns.id, None), others.pop(columns.kind, None)
    for column, value in ((columns.id, given_id), (columns.kind, kind), (columns.answer, answer)):
        _check_encodable(str(value), column)
    return Prompt(
        id=default_id if given_id is None else str(given_id),
        text=text,
        kind="" if kind is None else str(kind),
        columns=others,
    )


def _prompt_text(value: Any, column: str) -> str | tuple[Message, ...]:
    """Plain text, or chat messages as in TRL's conversational format."""
    if isinstance(value, str):
        if not value.strip():
            raise BadRow(f"column {column!r} is empty")
        _check_encodable(value, column)
        return value
    if not isinstance(value, Sequence) or not value:
        raise BadRow(f"column {column!r} must be text or a list of chat messages, not {_short(value)}")
    for message in value:
        is_message = isinstance(message, Mapping) and {"role", "content"} <= message.keys()
        if not is_message or not all(isinstance(message[key], str) for key in ("role", "content")):
            raise BadRow(
                f"column {column!r}: a message needs a text `role` and `content`, not {_short(message)}"
            )
        _check_encodable(message["role"] + message["content"], column)
    if value[-1]["role"] == "assistant":
        raise BadRow(
            f"column {column!r}: the last message is the assistant's, so there is nothing to respond to"
        )
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _check_encodable(text: str, column: str) -> None:
    """Refuse half of a surrogate pair, which JSON can write: no tokenizer and no UTF-8 file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise BadRow(f"column {column!r} has half of a surrogate pair ({half}): remove it") from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def text_key(prompt: Prompt) -> str:
    """A hash of the prompt's text alone: equal for equal questions with different ids."""
    text = prompt.text if isinstance(prompt.text, str) else json.dumps(prompt.text)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def without_test_questions(name: str, train: Sequence[Prompt], test: Sequence[Prompt]) -> list[Prompt]:
    """The training prompts whose question is not in the test set; warns how many were left out."""
    tested = {text_key(prompt) for prompt in test}
    kept = [prompt for prompt in train if text_key(prompt) not in tested]
    if len(kept) < len(train):
        warnings.warn(
            f"task {name!r}: {len(train) - len(kept)} of {len(train)} training prompts are also test prompts "
            "and were left out",
            stacklevel=2,
        )
    return kept


def hold_out(prompts: Sequence[Prompt], share: float) -> tuple[list[Prompt], list[Prompt]]:
    """Hold out about `share` of the prompts for testing: those whose text has the lowest hash.

    The choice does not depend on the order of the rows, and equal questions end up in the same split.
    """
    if share == 0:
        return list(prompts), []
    keys = sorted(text_key(prompt) for prompt in prompts)
    highest = keys[max(1, round(share * len(keys))) - 1]
    train = [prompt for prompt in prompts if text_key(prompt) > highest]
    return train, [prompt for prompt in prompts if text_key(prompt) <= highest]


def with_template(prompts: Iterable[Prompt], template: str) -> list[Prompt]:
    """Insert each plain-text prompt at `{prompt}` of the template; chat prompts stay as they are."""
    return [
        replace(prompt, text=template.replace("{prompt}", prompt.text))
        if isinstance(prompt.text, str)
        else prompt
        for prompt in prompts
    ]
