"""Requests to an OpenAI-compatible server: limits, retries, and errors that say what to change.

The server is not trusted. Redirects are not followed, replies have a largest size and a deadline, and the key
is in no message and in no text: a server that repeats it finds it replaced.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any

import httpx2

from hacrl.agents.errors import AgentError
from hacrl.printable import printable, valid_text
from hacrl.recipe.settings import EndpointSettings
from hacrl.runs.json_files import is_integer, is_number, parse_json
from hacrl.types import FinishReason

LARGEST_REPLY = 16 * 2**20
"""Bytes. A token with its log-prob takes about 100."""
BUSY = frozenset({408, 409, 425, 429})
"""Statuses after which the same request may succeed later, besides 500 and above."""
NOT_THIS_ONE = frozenset({400, 413, 422})
"""Statuses that may be due to one prompt: too long, or refused by a filter."""
LONGEST_WAIT = 300.0
"""Seconds before a request is repeated, whatever the server asks for."""
FIXES = {
    401: "set source.key_env to the environment variable that holds a valid key",
    403: "set source.key_env to the environment variable that holds a valid key",
    404: "check source.url, which ends with /v1 on most servers, and the agent's model",
}


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


class _Again(Exception):
    """The request may succeed later, after at least so many seconds."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class EndpointClient:
    """Sends requests from any number of threads."""

    def __init__(
        self, agent: str, settings: EndpointSettings, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._sleep = sleep
        self._key = read_key(agent, settings)
        self._url = settings.url.rstrip("/") + "/chat/completions"
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._http = httpx2.Client(headers=headers, timeout=settings.timeout_seconds, follow_redirects=False)
        self._turn = Lock()
        self._next = 0.0
        """When the next request may begin (`requests_per_minute`)."""

    def complete(self, body: Mapping[str, Any]) -> Reply:
        """The reply to one request; an `AgentError` if there is none after all retries."""
        for attempt in range(self._settings.retries + 1):
            self._pace()
            try:
                return self._attempt(body)
            except _Again as again:
                reason, asked = str(again), again.seconds
            if attempt < self._settings.retries:
                backoff = 2.0**attempt * random.uniform(0.5, 1.0)
                self._sleep(min(LONGEST_WAIT, max(backoff, asked)))
        raise self._error(
            f"{reason}, {self._settings.retries + 1} times in a row",
            "check that the server runs, or raise source.retries or source.timeout_seconds; the replies so "
            "far are kept, and a resumed run goes on with them",
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _pace(self) -> None:
        per_minute = self._settings.requests_per_minute
        if per_minute is None:
            return
        with self._turn:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + 60 / per_minute
        self._sleep(begin - now)

    def _attempt(self, body: Mapping[str, Any]) -> Reply:
        status, retry_after, data = self._post(json.dumps(body).encode())
        if status in BUSY or status >= 500:
            raise _Again(f"status {status}: {self._shown(data)}", _seconds(retry_after))
        if status in NOT_THIS_ONE:
            return Reply(refused=f"status {status}: {self._shown(data)}")
        if 300 <= status < 400:
            raise self._error(f"status {status}", "redirects are not followed: set source.url to its target")
        if status != 200:
            fix = FIXES.get(status, "see the server's documentation")
            raise self._error(f"status {status}: {self._shown(data)}", fix)
        try:
            found = parse_json(self._without_key(data))
        except ValueError as error:
            raise _Again(f"the reply is not JSON ({printable(str(error), 80)})") from error
        try:
            return read_reply(found, self._settings.logprobs)
        except ValueError as error:
            raise self._error(str(error), "source.url has to be an OpenAI-compatible server") from error

    def _post(self, body: bytes) -> tuple[int, str, bytes]:
        """Status, `Retry-After` and the whole reply; a reply that drips in too slowly is given up."""
        deadline = time.monotonic() + self._settings.timeout_seconds
        try:
            with self._http.stream("POST", self._url, content=body) as response:
                data = bytearray()
                for chunk in response.iter_raw():
                    data += chunk
                    if len(data) > LARGEST_REPLY:
                        raise self._error(
                            f"the reply has more than {LARGEST_REPLY >> 20} MB",
                            "lower sampling.max_new_tokens",
                        )
                    if time.monotonic() > deadline:
                        raise _Again(f"no whole reply in {self._settings.timeout_seconds:g} s")
                return response.status_code, response.headers.get("retry-after", ""), bytes(data)
        except httpx2.TimeoutException as error:
            raise _Again(f"no reply in {self._settings.timeout_seconds:g} s") from error
        except httpx2.TransportError as error:
            raise _Again(f"no connection ({printable(str(error), 120) or type(error).__name__})") from error

    def _error(self, what: str, fix: str) -> AgentError:
        return AgentError(f"agent {self._agent!r}, {self._url}: {what}: {fix}")

    def _shown(self, data: bytes) -> str:
        return printable(self._without_key(data).decode(errors="replace"), 200) or "no message"

    def _without_key(self, data: bytes) -> bytes:
        return data.replace(self._key.encode(), b"***") if self._key else data


def read_key(agent: str, settings: EndpointSettings) -> str | None:
    """The key from the environment."""
    if settings.key_env is None:
        return None
    key = os.environ.get(settings.key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise AgentError(
            f"agent {agent!r}: the environment variable {settings.key_env} (source.key_env) holds "
            "no key: export it before the run"
        )
    return key


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


def _seconds(retry_after: str) -> float:
    """`Retry-After`: seconds or a date; 0 if it says nothing."""
    try:
        return max(0.0, float(retry_after)) if retry_after else 0.0
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
