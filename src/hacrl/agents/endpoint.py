"""A peer behind an OpenAI-compatible server. Every reply is on the disk before it is used."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from hacrl.agents.completion import Reply, complete
from hacrl.agents.errors import AgentError
from hacrl.agents.json_client import JsonClient, in_threads
from hacrl.agents.peer import Peer
from hacrl.agents.rendering import chat_messages
from hacrl.recipe.agent_settings import AgentSettings, EndpointSettings
from hacrl.recipe.settings import SamplingSettings
from hacrl.runs.files import StorageError, append_jsonl, make_directory
from hacrl.runs.json_files import is_integer, is_number, read_jsonl, truncate_jsonl
from hacrl.types import Prompt, Rollout


class EndpointPeer(Peer):
    """Asks once for every response: a repeated step finds the replies that its first attempt has stored."""

    def __init__(
        self, agent: AgentSettings, directory: Path, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`directory` keeps the replies, in `<name>.jsonl`."""
        super().__init__(agent.name)
        assert isinstance(agent.source, EndpointSettings), "another source has another peer"
        self._agent = agent
        self._settings = agent.source
        self._client = JsonClient(agent.name, agent.source, sleep)
        self._store = ReplyStore(directory / f"{agent.name}.jsonl")
        self._started: Future[list[Rollout]] | None = None

    @property
    def usage(self) -> Mapping[str, int]:
        """Requests, tokens of prompts and tokens of responses that were paid for in the whole run."""
        return self._store.usage

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """One request for every response; where the server refuses a prompt there is none."""
        asked = []
        for prompt in prompts:
            for number in range(samples):
                drawn = f"{seed}/{self.name}/{prompt.id}/{number}"
                body = self._body(prompt, sampling, drawn)
                asked.append((prompt.id, number, request_key(drawn, body), body))
        missing = {key: body for _, _, key, body in asked if key not in self._store}
        in_threads(self._reply, missing.items(), self._settings.concurrency)  # those so far are stored
        replies = [(prompt_id, number, self._store[key]) for prompt_id, number, key, _ in asked]
        refused = [reply.refused for _, _, reply in replies if reply.refused]
        if refused and len(refused) == len(replies):
            raise AgentError(
                f"agent {self.name!r}, {self._settings.url}: it refuses every request: {refused[0]}: check "
                "the agent's model and source.options"
            )
        return [
            Rollout(
                prompt_id,
                number,
                reply.text,
                (),
                reply.token_logps,
                reply.finish_reason,
                tokens=reply.tokens or len(reply.token_logps),
            )
            for prompt_id, number, reply in replies
            if not reply.refused
        ]

    def start_sampling(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> bool:
        """Send the requests from threads, while others are trained."""
        thread = ThreadPoolExecutor(1)
        self._started = thread.submit(self.sample, prompts, samples, sampling, seed)
        thread.shutdown(wait=False)
        return True

    def finish_sampling(self) -> list[Rollout]:
        """Wait for the replies."""
        assert self._started is not None, "nothing was started"
        return self._started.result()

    def fingerprint(self) -> str:
        """Of the model's name: its weights are not known."""
        return hashlib.blake2b(self._agent.model.encode(), digest_size=8).hexdigest()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _reply(self, request: tuple[str, Mapping[str, Any]]) -> None:
        key, body = request
        self._store.add(key, complete(self._client, body, self._settings.logprobs))

    def _body(self, prompt: Prompt, sampling: SamplingSettings, drawn: str) -> dict[str, Any]:
        """The request; `source.options` come last, and null leaves a field out."""
        body: dict[str, Any] = {
            "model": self._agent.model,
            "messages": [dict(message) for message in chat_messages(prompt, self._agent)],
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": int.from_bytes(hashlib.blake2b(drawn.encode(), digest_size=4).digest(), "big") >> 1,
            "stop": list(sampling.stop) or None,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p or None,
            "logprobs": self._settings.logprobs or None,
            **self._settings.options,
        }
        return {field: value for field, value in body.items() if value is not None}


class ReplyStore:
    """All replies of an endpoint in a run, by request: a line of JSON each, on the disk once it is added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._replies: dict[str, Reply] = {}
        self.usage: Counter[str] = Counter()
        make_directory(path.parent)
        truncate_jsonl(path, lambda line: True)  # a last line torn by a kill
        for number, line in enumerate(read_jsonl(path) if path.exists() else (), start=1):
            try:
                self._keep(str(line.pop("request")), _stored(line))
            except (TypeError, KeyError, ValueError) as error:
                raise StorageError(f"{path}, line {number} is not a stored reply: {error}") from error

    def __contains__(self, key: str) -> bool:
        return key in self._replies

    def __getitem__(self, key: str) -> Reply:
        return self._replies[key]

    def add(self, key: str, reply: Reply) -> None:
        """Store a reply."""
        with self._lock:
            append_jsonl(self._path, {"request": key, **asdict(reply)})
            self._keep(key, reply)

    def _keep(self, key: str, reply: Reply) -> None:
        self._replies[key] = reply
        self.usage.update(requests=1, prompt_tokens=reply.prompt_tokens, response_tokens=reply.tokens)


def request_key(drawn: str, body: Mapping[str, Any]) -> str:
    """What tells requests apart: which response it is (`drawn`: step, prompt, sample) and what is sent."""
    return hashlib.blake2b(json.dumps([drawn, body], sort_keys=True).encode(), digest_size=16).hexdigest()


def _stored(line: Mapping[str, Any]) -> Reply:
    reply = Reply(**{**line, "token_logps": tuple(line["token_logps"])})
    texts = isinstance(reply.text, str) and isinstance(reply.refused, str | None)
    counts = is_integer(reply.tokens) and is_integer(reply.prompt_tokens)
    logps = all(map(is_number, reply.token_logps))
    if not (texts and counts and logps and reply.finish_reason in ("stop", "length")):
        raise ValueError("a value has the wrong type")
    return reply
