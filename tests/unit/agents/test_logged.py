"""Files of logged responses from various tools, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hacrl.agents.errors import AgentError
from hacrl.agents.logged import LoggedPeer
from hacrl.recipe import LoggedSettings, SamplingSettings
from hacrl.runs.files import StorageError
from hacrl.types import Prompt

CHAT = Prompt("c", ({"role": "system", "content": "Brief."}, {"role": "user", "content": "2+2="}))


def log(path: Path, *rows: Any, **columns: str) -> LoggedPeer:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return LoggedPeer("eve", LoggedSettings(file=str(path), **columns))


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"prompt": "1+1=", "response": "2"}, {}),
        ({"prompt": " 1+1=\n", "response": ["2"]}, {}),
        (
            {
                "prompt": [{"role": "user", "content": "1+1="}],
                "response": {"role": "assistant", "content": "2"},
            },
            {},
        ),
        (
            {"messages": [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]},
            {"prompt": "messages", "response": "messages"},
        ),
        (
            {"question": "1+1=", "completion": [{"role": "assistant", "content": [{"text": "2"}]}]},
            {"prompt": "question", "response": "completion"},
        ),
        ({"prompt_id": "p", "text": "2", "reward": 1.0}, {"prompt": "prompt_id", "response": "text"}),
    ],
)
def test_prompts_are_found_by_text_messages_or_id(tmp_path, row, columns):
    eve = log(tmp_path / "log.jsonl", row, **columns)
    (found,) = eve.responses(Prompt("p", "1+1="))
    assert found == ("2", "stop")
    assert not eve.responses(CHAT)


def test_a_chat_is_another_prompt_than_its_last_message(tmp_path):
    eve = log(tmp_path / "log.jsonl", {"prompt": list(CHAT.text), "response": "4"})
    assert eve.responses(CHAT) == [("4", "stop")]
    assert not eve.responses(Prompt("p", "2+2="))


def test_several_responses_are_numbered_and_of_too_many_some_are_drawn_by_the_seed(tmp_path):
    rows = [{"prompt": "1+1=", "response": [str(n), str(n + 1)]} for n in range(0, 20, 2)]
    rows.append({"prompt": "2+2=", "response": "cut", "finish_reason": "length"})
    eve = log(tmp_path / "log.jsonl", *rows)
    prompts = [Prompt("a", "1+1="), Prompt("b", "3+3="), Prompt("c", "2+2=")]
    draws = [eve.sample(prompts, 4, SamplingSettings(), seed) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert [(r.prompt_id, r.sample) for r in draws[0]] == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("c", 0)]
    assert len({r.text for r in draws[0]}) == 5
    assert draws[0][-1].finish_reason == "length"
    everything = eve.sample(prompts[:1], 100, SamplingSettings(), 0)
    assert [r.text for r in everything] == [str(n) for n in range(20)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a", "response": "b"}\n{"prompt"', r"log\.jsonl, line 2: "),
        ("[]", "line 1: expected a JSON object, got list"),
        (
            '{"question": "a", "response": "b"}',
            "line 1: no column 'prompt' among question, response: set source",
        ),
        ('{"prompt": 3, "response": "b"}', "line 1: prompt, response: expected texts, or chat messages"),
        ('{"prompt": "a", "response": {"text": "b"}}', "line 1: prompt, response: expected texts"),
        ('{"prompt": "a", "response": null}', "line 1: prompt, response: expected texts"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path, text, message):
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(StorageError, match=message):
        LoggedPeer("eve", LoggedSettings(file=str(tmp_path / "log.jsonl")))


def test_the_fingerprint_is_that_of_the_file(tmp_path):
    one, same, other = (
        log(tmp_path / f"{n}.jsonl", {"prompt": "a", "response": text}) for n, text in enumerate("aab")
    )
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_it_can_do_nothing_but_respond(tmp_path):
    eve = log(tmp_path / "log.jsonl", {"prompt": "a", "response": "b"})
    for use in (
        lambda: eve.encoder,
        lambda: eve.score([]),
        lambda: eve.prepare([]),
        lambda: eve.features([]),
        lambda: eve.update([], None),
        lambda: eve.gradient((), None, 0),
        lambda: eve.save("x"),
        lambda: eve.write_state("x"),
        lambda: eve.read_state("x"),
    ):
        with pytest.raises(AgentError, match="agent 'eve' only responds, it cannot"):
            use()
