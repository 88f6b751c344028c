"""Entries: what is written is read back, and nothing else is taken for an entry."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.pool.entry import Entry, UnknownSchema, pool_key, read_entry, sign
from helpers_pool import KEY, OTHER_KEY, entry

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CHAT = st.lists(st.fixed_dictionaries({"role": TEXT, "content": TEXT}), min_size=1, max_size=3).map(tuple)


@given(TEXT | CHAT, TEXT, st.floats(-1e9, 1e9), st.integers(0, 2**60))
def test_what_is_signed_is_read_back(prompt: Any, response: str, reward: float, version: int):
    written = entry(prompt=prompt, response=response, reward=reward, version=version)
    assert read_entry(sign(written, KEY), KEY) == (written, True)
    assert read_entry(sign(written, KEY), OTHER_KEY) == (written, False)


def test_the_signature_is_the_hmac_of_the_canonical_json_without_it():
    line = json.loads(sign(entry(), KEY))
    signature = line.pop("signature")
    text = json.dumps(line, sort_keys=True, separators=(",", ":"))
    assert signature == hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_keeps_the_signature(place: int, change: int):
    line = bytearray(sign(entry(), KEY))
    line[place % len(line)] ^= change
    try:
        read, signed = read_entry(bytes(line), KEY)
    except ValueError:
        return
    assert not signed or read == entry()


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("reward", "1", "reward: expected a number"),
        ("reward", True, "reward: expected a number"),
        ("source", "../eve", "source: expected a name"),
        ("writer", "", "writer: expected a name"),
        ("version", -1, "version: expected a whole number"),
        ("tokens", 0, "tokens: expected"),
        ("response", "\ud800", "response: expected a text"),
        ("prompt", [], "prompt: expected a text or messages"),
        ("prompt", [{"role": "user"}], "prompt: expected a text or messages"),
        ("prompt", [{"role": "user", "content": 3}], "prompt: expected a text or messages"),
        ("finish_reason", "tired", "finish_reason: expected"),
        ("extra", 1, "unknown keys"),
        ("logp", "low", "logp: expected"),
    ],
)
def test_wrong_values_are_named(key: str, value: object, complaint: str):
    row = json.loads(sign(entry(), KEY)) | {key: value}
    with pytest.raises(ValueError, match=complaint):
        read_entry(json.dumps(row).encode(), None)


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"3", b'{"schema": 1}', b"\xff", b'{"schema": 1, "reward": NaN}']
)
def test_what_is_no_entry(line: bytes):
    with pytest.raises(ValueError, match=r".") as caught:
        read_entry(line, KEY)
    assert not isinstance(caught.value, UnknownSchema)


def test_other_versions_of_the_format_are_refused():
    row = json.loads(sign(entry(), KEY)) | {"schema": 2}
    with pytest.raises(UnknownSchema):
        read_entry(json.dumps(row).encode(), KEY)


def test_an_id_is_that_of_the_draw_and_not_of_its_text():
    assert entry(response="a").id == entry(response="b", reward=0.0).id
    others = [entry(1), *(entry(**{key: value}) for key, value in OTHER_DRAWS.items())]
    assert len({entry().id, *(other.id for other in others)}) == 1 + len(others)


OTHER_DRAWS: dict[str, Any] = {"writer": "w", "source": "ada", "version": 2, "sample": 1}


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OUR_KEY", "x" * 16)
    assert pool_key("OUR_KEY") == b"x" * 16
    monkeypatch.setenv("OUR_KEY", "short")
    with pytest.raises(ValueError, match="OUR_KEY has 5 characters") as caught:
        pool_key("OUR_KEY")
    assert "short" not in str(caught.value).replace("shorter", "")
    monkeypatch.delenv("OUR_KEY")
    with pytest.raises(ValueError, match="OUR_KEY is not set"):
        pool_key("OUR_KEY")


def test_entries_have_no_tokens():
    assert not {"token_ids", "token_logps"} & set(Entry.__dataclass_fields__)
