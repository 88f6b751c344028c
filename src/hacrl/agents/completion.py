"""Chat completions of an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hacrl.agents.json_client import JsonClient, Refusal
from hacrl.printable import valid_text
from hacrl.runs.json_files import is_integer, is_number
from hacrl.types import FinishReason

PATH = "/chat/completions"
NOT_THIS_ONE = frozenset({400, 413, 422})
"""Statuses that may be due to one prompt: too long, or refused by a filter."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, or why the server refuses to respond to this prompt."""

    text: str = ""
    finish_reason: FinishReason = "stop"
    token_logps: tuple[float, ...] = ()
    """Of the tokens of the text; empty if they were not asked for, or do not spell the text."""
    tokens: int = 0
    """Counted by the server."""
    prompt_tokens: int = 0
    refused: str | None = None


def complete(client: JsonClient, body: Mapping[str, Any], logprobs: bool) -> Reply:
    """The reply to one request; an `AgentError` if there is none after all retries."""
    found = client.ask(PATH, body, NOT_THIS_ONE)
    if isinstance(found, Refusal):
        return Reply(refused=found.reason)
    try:
        return read_reply(found, logprobs)
    except ValueError as error:
        raise client.error(PATH, str(error), "source.url has to be an OpenAI-compatible server") from error


def read_reply(found: Any, logprobs: bool) -> Reply:
    """What the server says, or a `ValueError` that names what is wrong with it."""
    try:
        choice = found["choices"][0]
        text = choice["message"]["content"]
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError("the reply has no choices[0].message.content") from error
    if not isinstance(text, str | None):
        raise ValueError("the reply's choices[0].message.content is not a text")
    text = valid_text(text or "")
    usage = found.get("usage") if isinstance(found.get("usage"), Mapping) else {}
    return Reply(
        text,
        "length" if choice.get("finish_reason") == "length" else "stop",
        _logps(choice, text) if logprobs else (),
        _count(usage, "completion_tokens"),
        _count(usage, "prompt_tokens"),
    )


def _logps(choice: Mapping[str, Any], text: str) -> tuple[float, ...]:
    """The log-probs of the tokens that spell the text: some servers send EOS as well, others do not.

    Empty where they do not spell it, as with characters that are cut into several tokens: the mean would be
    that of another text.
    """
    try:
        tokens = choice["logprobs"]["content"]
        pairs = [(str(token["token"]), token["logprob"]) for token in tokens]
    except (TypeError, KeyError) as error:
        raise ValueError("the reply has no log-probs although source.logprobs asks for them") from error
    if not all(is_number(logp) for _, logp in pairs):
        raise ValueError("the reply's log-probs are not numbers")
    for kept in (pairs, pairs[:-1]):
        if "".join(token for token, _ in kept) == text:
            return tuple(float(logp) for _, logp in kept)
    return ()


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key, 0)
    return value if is_integer(value) and 0 <= value < 2**31 else 0
