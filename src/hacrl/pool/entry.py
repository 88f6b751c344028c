"""One entry of a pool: a verified response as it travels between trainers, signed with their shared key.

An entry is a line of canonical JSON (sorted keys, no spaces, ASCII); its key `signature` is the HMAC-SHA256
of the same JSON without that key. It shows that a member of the pool wrote the entry, not which one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType, get_args

from hacrl.runs.json_files import expect, is_integer, is_number, parse_json
from hacrl.types import FinishReason, Message

SCHEMA = 1
"""Changes when an older reader could misunderstand an entry; it then refuses it."""
LARGEST = 1 << 20
"""Bytes of an entry, at most."""
SHORTEST_KEY = 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Writers and sources: as the names of agents."""
PoolKey = NewType("PoolKey", bytes)


class UnknownSchema(ValueError):
    """An entry of another version of this format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified response of an agent that trains elsewhere. It has no tokens: tokenizers differ."""

    task: str
    prompt: str | tuple[Message, ...]
    response: str
    reward: float
    verifier: str
    """What gave the reward; a reader verifies again by default."""
    writer: str
    """The run that wrote it: names are unique within a run only."""
    source: str
    """The agent that drew it."""
    version: int
    """The source's step: how often its policy had been updated."""
    sample: int
    """Number of the response among the source's responses to the prompt in this step."""
    tokens: int
    """Of the response, by the source's tokenizer."""
    logp: float | None = None
    """Sum of their log-probs under the source; None: unknown."""
    kind: str = ""
    finish_reason: FinishReason = "stop"
    stop: str | None = None
    ending: str = ""
    """What the source's tokens wrote after the response (`Rollout.ending`)."""

    @property
    def id(self) -> str:
        """The same for the same response when a resumed run writes it again."""
        parts = [self.writer, self.source, self.version, self.sample, _plain(self.prompt)]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


_FIELDS = dataclasses.fields(Entry)
_KEYS = {field.name for field in _FIELDS} | {"schema", "signature"}
_REQUIRED = {field.name for field in _FIELDS if field.default is dataclasses.MISSING}
_TEXTS = ("task", "response", "verifier", "kind", "ending")


def pool_key(variable: str) -> PoolKey:
    """The shared key from an environment variable; `ValueError` says what is wrong with it."""
    key = os.environ.get(variable, "")
    if len(key) < SHORTEST_KEY:
        found = f"has {len(key)} characters" if key else "is not set"
        raise ValueError(
            f"the environment variable {variable} {found}: set it to the pool's key, at least "
            f"{SHORTEST_KEY} characters that all trainers of the pool share"
        )
    return PoolKey(key.encode(errors="surrogateescape"))


def sign(entry: Entry, key: PoolKey) -> bytes:
    """The line of an entry, without the line break."""
    values = {field.name: getattr(entry, field.name) for field in _FIELDS}
    values["prompt"], values["schema"] = _plain(entry.prompt), SCHEMA
    values["signature"] = _signature(values, key)
    return _canonical(values)


def read_entry(line: bytes, key: PoolKey | None) -> tuple[Entry, bool]:
    """The entry of a line, and whether its signature is right (always without a key).

    Raises `UnknownSchema`, or `ValueError` for whatever else is wrong.
    """
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}")
    if row.get("schema") != SCHEMA:
        raise UnknownSchema(f"schema {row.get('schema')!r}, this is {SCHEMA}")
    signature = row.pop("signature", None)
    signed = key is None or (
        isinstance(signature, str)
        and signature.isascii()
        and hmac.compare_digest(signature, _signature(row, key))
    )
    return _entry(row), signed


def _canonical(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _signature(values: Mapping[str, Any], key: PoolKey) -> str:
    return hmac.new(key, _canonical(values), hashlib.sha256).hexdigest()


def _plain(prompt: str | tuple[Message, ...]) -> str | list[dict[str, str]]:
    return prompt if isinstance(prompt, str) else [dict(message) for message in prompt]


def _entry(row: dict[str, Any]) -> Entry:
    del row["schema"]
    missing, unknown = sorted(_REQUIRED - row.keys()), sorted(row.keys() - _KEYS)
    if missing or unknown:
        raise ValueError(f"missing keys {missing}, unknown keys {unknown}")
    for key in _TEXTS:
        expect(row, key, _is_text(row.get(key, "")), "a text")
    for key in ("writer", "source"):
        expect(row, key, is_name(row[key]), "a name of letters, digits, `.`, `_` and `-`")
    expect(row, "prompt", _is_prompt(row["prompt"]), "a text or messages with role and content")
    expect(row, "reward", is_number(row["reward"]), "a number")
    expect(row, "logp", row.get("logp") is None or is_number(row["logp"]), "a number or null")
    for key in ("version", "sample"):
        expect(row, key, is_integer(row[key]) and row[key] >= 0, "a whole number from 0")
    expect(row, "tokens", is_integer(row["tokens"]) and 0 < row["tokens"] <= LARGEST, "a number of tokens")
    expect(row, "stop", row.get("stop") is None or _is_text(row["stop"]), "a text or null")
    reason = row.get("finish_reason", "stop")
    expect(row, "finish_reason", reason in get_args(FinishReason), '"stop" or "length"')
    prompt = row["prompt"]
    return Entry(**{**row, "prompt": prompt if isinstance(prompt, str) else tuple(prompt)})


def is_name(value: object) -> bool:
    """Whether a writer or source may be called this: it becomes part of file names and metrics."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_text(value: object) -> bool:
    """Whether it is a string that every tokenizer can take: JSON allows half a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_prompt(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(
            isinstance(message, dict)
            and message.keys() == {"role", "content"}
            and all(map(_is_text, message.values()))
            for message in value
        )
    return _is_text(value)
