"""Requests to a server that speaks JSON: limits, retries, and errors that say what to change.

The server is not trusted. Redirects are not followed, replies have a largest size and a deadline, and the key
is in no message and in no text: a server that repeats it finds it replaced.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any, TypeVar

import httpx2

from hacrl.agents.errors import AgentError, ServerAway
from hacrl.printable import printable
from hacrl.recipe.agent_settings import EndpointSettings
from hacrl.runs.json_files import parse_json

T = TypeVar("T")
R = TypeVar("R")

LARGEST_REPLY = 16 * 2**20
"""Bytes. A token with its log-prob takes about 100."""
BUSY = frozenset({408, 409, 425, 429})
"""Statuses after which the same request may succeed later, besides 500 and above."""
LONGEST_WAIT = 300.0
"""Seconds before a request is repeated, whatever the server asks for."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server does not answer this request, and would not answer it later."""

    status: int
    reason: str


class _Again(Exception):
    """The request may succeed later, after at least so many seconds."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


class JsonClient:
    """Sends requests from any number of threads."""

    def __init__(
        self,
        agent: str,
        settings: EndpointSettings,
        sleep: Callable[[float], None] = time.sleep,
        section: str = "source",
    ) -> None:
        """`section` of the agent has these settings in the recipe; messages name it."""
        self._agent = agent
        self._settings = settings
        self._sleep = sleep
        self._section = section
        self._key = read_key(agent, settings, section)
        self._root = settings.url.rstrip("/")
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._http = httpx2.Client(headers=headers, timeout=settings.timeout_seconds, follow_redirects=False)
        self._turn = Lock()
        self._next = 0.0
        """When the next request may begin (`requests_per_minute`)."""

    def ask(self, path: str, body: Mapping[str, Any] | None = None, refusals: Collection[int] = ()) -> Any:
        """What the server answers, to POST with a body and to GET without.

        For statuses in `refusals` that is a `Refusal`; for all others, and after the last retry, there is
        an `AgentError`.
        """
        for attempt in range(self._settings.retries + 1):
            self._pace()
            try:
                return self._attempt(path, body, refusals)
            except _Again as again:
                reason, asked = str(again), again.seconds
            if attempt < self._settings.retries:
                backoff = 2.0**attempt * random.uniform(0.5, 1.0)
                self._sleep(min(LONGEST_WAIT, max(backoff, asked)))
        keys = f"{self._section}.retries or {self._section}.timeout_seconds"
        raise ServerAway(
            f"agent {self._agent!r}, {self._root}{path}: {reason}, {self._settings.retries + 1} times in a "
            f"row: check that the server runs, or raise {keys}; the run can be resumed"
        )

    def error(self, path: str, what: str, fix: str) -> AgentError:
        """An error that names the agent and the address."""
        return AgentError(f"agent {self._agent!r}, {self._root}{path}: {what}: {fix}")

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

    def _attempt(self, path: str, body: Mapping[str, Any] | None, refusals: Collection[int]) -> Any:
        status, retry_after, data = self._send(path, None if body is None else json.dumps(body).encode())
        if status in refusals:
            return Refusal(status, f"status {status}: {self._shown(data)}")
        if status in BUSY or status >= 500:
            raise _Again(f"status {status}: {self._shown(data)}", _seconds(retry_after))
        if 300 <= status < 400:
            raise self.error(
                path, f"status {status}", f"redirects are not followed: set {self._section}.url to its target"
            )
        if status != 200:
            raise self.error(path, f"status {status}: {self._shown(data)}", self._fix(status))
        try:
            return parse_json(self._without_key(data))
        except ValueError as error:
            raise _Again(f"the reply is not JSON ({printable(str(error), 80)})") from error

    def _fix(self, status: int) -> str:
        if status in (401, 403):
            return f"set {self._section}.key_env to the environment variable that holds a valid key"
        if status == 404 and self._section == "source":
            return "check source.url, which ends with /v1 on most servers, and the agent's model"
        return "see the server's documentation"

    def _send(self, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        """Status, `Retry-After` and the whole reply; a reply that drips in too slowly is given up."""
        deadline = time.monotonic() + self._settings.timeout_seconds
        method = "GET" if body is None else "POST"
        try:
            with self._http.stream(method, self._root + path, content=body) as response:
                data = bytearray()
                for chunk in response.iter_raw():
                    data += chunk
                    if len(data) > LARGEST_REPLY:
                        raise self.error(
                            path,
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

    def _shown(self, data: bytes) -> str:
        return printable(self._without_key(data).decode(errors="replace"), 200) or "no message"

    def _without_key(self, data: bytes) -> bytes:
        return data.replace(self._key.encode(), b"***") if self._key else data


def in_threads(work: Callable[[T], R], items: Collection[T], count: int) -> list[R]:
    """The results in the order of the items; the first error ends it, and what has not begun is left out."""
    with ThreadPoolExecutor(max(1, min(count, len(items)))) as threads:
        tasks = [threads.submit(work, item) for item in items]
        done, pending = wait(tasks, return_when=FIRST_EXCEPTION)
        for task in pending:
            task.cancel()
        for task in done:
            task.result()
        return [task.result() for task in tasks]


def read_key(agent: str, settings: EndpointSettings, section: str = "source") -> str | None:
    """The key from the environment."""
    if settings.key_env is None:
        return None
    key = os.environ.get(settings.key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise AgentError(
            f"agent {agent!r}: the environment variable {settings.key_env} ({section}.key_env) holds "
            "no key: export it before the run"
        )
    return key


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
