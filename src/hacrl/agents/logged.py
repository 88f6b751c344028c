"""A peer whose responses were logged earlier, by whatever tool, in a file of JSON lines."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hacrl.agents.peer import Peer
from hacrl.printable import printable, valid_text
from hacrl.recipe.agent_settings import LoggedSettings
from hacrl.recipe.settings import SamplingSettings
from hacrl.runs.files import digest
from hacrl.runs.json_files import parse_jsonl
from hacrl.types import FinishReason, Message, Prompt, Rollout


class Logged(NamedTuple):
    """One response of the file."""

    text: str
    finish_reason: FinishReason


class LoggedPeer(Peer):
    """Responds with what the file has for a prompt; to other prompts it has no response."""

    def __init__(self, name: str, settings: LoggedSettings) -> None:
        super().__init__(name)
        self._fingerprint = digest(Path(settings.file))[:16]
        self._responses = read_log(settings)

    def responses(self, prompt: Prompt) -> Sequence[Logged]:
        """All responses to a prompt, found by its text or its id, in the order of the file."""
        return self._responses.get(_key(prompt.text)) or self._responses.get(prompt.id) or ()

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """At most `samples` responses to each prompt; of more, some drawn by the seed."""
        found = []
        for prompt in prompts:
            logged = self.responses(prompt)
            if len(logged) > samples:
                logged = random.Random(f"{seed}/{self.name}/{prompt.id}").sample(logged, samples)
            found += [
                Rollout(prompt.id, number, response.text, (), (), response.finish_reason)
                for number, response in enumerate(logged)
            ]
        return found

    def fingerprint(self) -> str:
        """Of the file."""
        return self._fingerprint


def read_log(settings: LoggedSettings) -> dict[str, list[Logged]]:
    """The responses of a file by prompt; what cannot be read is named by file and line."""
    found: defaultdict[str, list[Logged]] = defaultdict(list)
    for key, responses in parse_jsonl(Path(settings.file), lambda row: _row(row, settings)):
        found[key] += responses
    return dict(found)


def _row(row: Any, settings: LoggedSettings) -> tuple[str, list[Logged]]:
    """The prompt of a line, and its responses."""
    if not isinstance(row, Mapping):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}")
    for column in (settings.prompt, settings.response):
        if column not in row:
            columns = printable(", ".join(map(str, row)), 200)
            raise ValueError(
                f"no column {column!r} among {columns}: set source.prompt and source.response to its columns"
            )
    prompt, response = row[settings.prompt], row[settings.response]
    if settings.prompt == settings.response:
        if not isinstance(prompt, list) or len(prompt) < 2:
            raise ValueError(f"{settings.prompt}: expected chat messages, the last one the response")
        prompt, response = prompt[:-1], prompt[-1]
    cut = row.get("finish_reason") == "length"
    try:
        texts = list(_texts(response))
        return _key(_prompt(prompt)), [
            Logged(valid_text(text), "length" if cut else "stop") for text in texts
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"{settings.prompt}, {settings.response}: expected texts, or chat messages with role and content"
        ) from error


def _prompt(value: Any) -> str | tuple[Message, ...]:
    if isinstance(value, str):
        return value
    return tuple({"role": str(message["role"]), "content": _content(message)} for message in value)


def _texts(value: Any) -> Iterator[str]:
    """The responses in a column: one, or a list; a list of messages is one chat."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield _content(value)
    elif value and all(isinstance(one, Mapping) and "role" in one for one in value):
        yield _content(value[-1])
    else:
        for one in value:
            yield from _texts(one)


def _content(message: Mapping[str, Any]) -> str:
    """A message's text, which may be in parts."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(str(part["text"]) for part in content)


def _key(text: str | Sequence[Message]) -> str:
    """What identifies a prompt; a chat of one user message is the same as its text."""
    if isinstance(text, str):
        return text.strip()
    if len(text) == 1 and text[0]["role"] == "user":
        return text[0]["content"].strip()
    return json.dumps([[message["role"], message["content"].strip()] for message in text])
