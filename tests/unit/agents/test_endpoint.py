"""Requests to a server that is busy, slow, broken or hostile; replies that are asked for only once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from hacrl.agents.completion import Reply, complete, read_reply
from hacrl.agents.endpoint import EndpointPeer
from hacrl.agents.errors import AgentError
from hacrl.agents.json_client import LARGEST_REPLY, LONGEST_WAIT, JsonClient
from hacrl.recipe import AgentSettings, EndpointSettings, SamplingSettings
from hacrl.runs.files import StorageError
from hacrl.types import Prompt, Trajectory
from helpers_endpoint import KEY, Stub, cut_off, dripping, endless, reply, serve, silent, texts

PROMPTS = [Prompt("p1", "1+1="), Prompt("p2", "2+2=")]
SAMPLING = SamplingSettings(max_new_tokens=8)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serve(Stub()) as stub:
        yield stub


@pytest.fixture
def waits() -> list[float]:
    return []


class Client(JsonClient):
    def complete(self, body: dict[str, Any]) -> Reply:
        return complete(self, body, self._settings.logprobs)


def client(stub: Stub, waits: list[float], **changes: Any) -> Client:
    return Client("eve", EndpointSettings(url=stub.url, retries=3, **changes), waits.append)


def peer(stub: Stub, directory: Path, waits: list[float], **changes: Any) -> EndpointPeer:
    source = {"url": stub.url, "retries": 0, **changes}
    agent = AgentSettings(name="eve", model="m", source=source, system_prompt="Be brief.")  # type: ignore[arg-type]
    return EndpointPeer(agent, directory, waits.append)


def test_replies_come_while_others_work(stub, tmp_path, waits):
    told = Event()

    def respond(body: dict[str, Any]) -> str:
        assert told.wait(60)
        return "12"

    stub.respond = respond
    asked = (PROMPTS, 2, SAMPLING, 0)
    eve = peer(stub, tmp_path, waits)
    assert eve.start_sampling(*asked)
    told.set()  # not before it has returned
    drawn = eve.finish_sampling()
    assert [(each.prompt_id, each.sample, each.text) for each in drawn] == [
        (name, sample, "12") for name in ("p1", "p2") for sample in (0, 1)
    ]
    assert eve.sample(*asked) == drawn
    assert eve.usage["requests"] == 4, "a stored reply is not asked for again"
    stub.faults = [(401, b"no")] * 4
    eve.start_sampling(PROMPTS, 2, SAMPLING, 1)
    with pytest.raises(AgentError, match="status 401"):
        eve.finish_sampling()


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_is_asked_again_after_longer_and_longer_waits(stub, waits, status):
    stub.faults = [(status, b"busy")] * 3
    assert client(stub, waits).complete({}).text == "12"
    assert len(stub.bodies) == 4
    for wait, longest in zip(waits, (1, 2, 4), strict=True):
        assert longest / 2 <= wait <= longest


def test_the_server_says_how_long_to_wait(stub, waits):
    later = formatdate(4e9, usegmt=True)
    stub.faults = [(429, b"", {"Retry-After": when}) for when in ("17", later, "soon")]
    client(stub, waits).complete({})
    assert waits[0] == 17
    assert waits[1] == LONGEST_WAIT
    assert waits[2] <= 4


@pytest.mark.parametrize("fault", [cut_off, (200, b'{"choices": ['), (200, b"NaN")])
def test_a_damaged_reply_is_asked_for_again(stub, waits, fault):
    stub.faults = [fault]
    assert client(stub, waits).complete({}).text == "12"
    assert len(waits) == 1


@pytest.mark.parametrize("fault", [silent, dripping])
def test_a_reply_that_does_not_come_in_time_is_given_up(stub, waits, fault):
    stub.faults = [fault(stub)]
    assert client(stub, waits, timeout_seconds=0.2).complete({}).text == "12"
    assert len(waits) == 1


def test_after_the_last_retry_the_error_names_agent_address_cause_and_fix(stub, waits):
    stub.faults = [(503, b"overloaded")] * 4
    with pytest.raises(AgentError) as error:
        client(stub, waits).complete({})
    for part in ("'eve'", stub.url, "status 503: overloaded", "4 times in a row", "source.retries"):
        assert part in str(error.value)
    assert len(waits) == 3


def test_nobody_is_there(waits):
    with serve(Stub()) as gone:
        pass
    with pytest.raises(AgentError, match=r"no connection \(.*check that the server runs"):
        client(gone, waits).complete({})


def test_a_reply_without_an_end_is_refused(stub, waits):
    stub.faults = [endless]
    with pytest.raises(AgentError, match=f"the reply has more than {LARGEST_REPLY >> 20} MB"):
        client(stub, waits).complete({})
    assert waits == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ((302, b"", {"Location": "http://127.0.0.1:9/v1"}), "redirects are not followed"),
        ((401, b"bad key"), "status 401: bad key: set source.key_env"),
        ((404, b"no such model"), "status 404: no such model: check source.url"),
        ((200, b"[]"), r"no choices\[0\].message.content: source.url has to be an OpenAI"),
        ((200, b'{"choices": []}'), r"no choices\[0\]"),
        ((200, b'{"choices": [{"message": {"content": 3}}]}'), "is not a text"),
    ],
)
def test_what_cannot_get_better_is_not_asked_again(stub, waits, fault, message):
    stub.faults = [fault]
    with pytest.raises(AgentError, match=message):
        client(stub, waits).complete({})
    assert len(stub.bodies) == 1


def test_the_key_is_sent_and_nowhere_else(stub, waits, tmp_path, monkeypatch):
    """A hostile server that repeats it finds it replaced in errors, texts and files."""
    monkeypatch.setenv("EVE_KEY", KEY)
    stub.respond = lambda body: f"your key is {KEY}"
    eve = peer(stub, tmp_path, waits, key_env="EVE_KEY")
    assert eve.sample(PROMPTS[:1], 1, SAMPLING, 0)[0].text == "your key is ***"
    assert stub.headers[0]["Authorization"] == f"Bearer {KEY}"
    stub.faults = [(403, f"wrong key {KEY}\x1b[2J".encode())]
    with pytest.raises(AgentError) as error:
        eve.sample(PROMPTS, 1, SAMPLING, 1)
    assert KEY not in str(error.value)
    assert "\x1b" not in str(error.value)
    assert not any(KEY in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_a_variable_without_a_key_is_named(stub, waits, monkeypatch):
    monkeypatch.delenv("EVE_KEY", raising=False)
    with pytest.raises(AgentError, match=r"EVE_KEY \(source.key_env\) holds no key: export it"):
        client(stub, waits, key_env="EVE_KEY")


def test_requests_are_spread_over_the_minute(stub, waits):
    limited = client(stub, waits, requests_per_minute=6)
    for _ in range(3):
        limited.complete({})
    first, second, third = waits
    assert first == 0
    assert second == pytest.approx(10, abs=5)
    assert third == pytest.approx(20, abs=5)


def test_every_response_is_a_request_with_the_agents_own_prompt(stub, waits, tmp_path):
    stub.respond = lambda body: body["messages"][-1]["content"]
    options = {"seed": None, "max_tokens": None, "max_completion_tokens": 9}
    found = peer(stub, tmp_path, waits, options=options).sample(PROMPTS, 2, SAMPLING, 5)
    places = [(rollout.prompt_id, rollout.sample, rollout.text) for rollout in found]
    assert places == [("p1", 0, "1+1="), ("p1", 1, "1+1="), ("p2", 0, "2+2="), ("p2", 1, "2+2=")]
    assert {rollout.tokens for rollout in found} == {4}
    body = stub.bodies[0]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["max_completion_tokens"] == 9
    assert not {"seed", "max_tokens", "stop", "top_k", "logprobs"} & body.keys()


def test_a_repeated_step_asks_for_nothing_twice(stub, waits, tmp_path):
    """As after a kill in the middle of it: replies that had arrived are used, a torn last line is not."""
    stub.respond = lambda body: str(len(stub.bodies))
    stub.faults = [(200, reply("first")), (401, b"")]
    with pytest.raises(AgentError):
        peer(stub, tmp_path, waits, concurrency=1).sample(PROMPTS, 2, SAMPLING, 5)
    stored = tmp_path / "eve.jsonl"
    stored.write_text(stored.read_text() + '{"request": "torn')
    again = peer(stub, tmp_path, waits, concurrency=1)
    found = again.sample(PROMPTS, 2, SAMPLING, 5)
    assert found[0].text == "first"
    assert {rollout.text for rollout in found[1:]} == {"3", "4", "5"}  # the first attempt may have begun one
    assert again.usage == {"requests": 4, "prompt_tokens": 28, "response_tokens": 8}
    assert peer(stub, tmp_path, waits).sample(PROMPTS, 2, SAMPLING, 5) == found
    assert len(stub.bodies) == 5
    peer(stub, tmp_path, waits).sample(PROMPTS, 2, SAMPLING, 6)
    assert len(stub.bodies) == 9


def test_a_prompt_that_the_server_refuses_has_no_response_and_is_not_asked_again(stub, waits, tmp_path):
    stub.faults = [(400, b"content filter")]
    eve = peer(stub, tmp_path, waits, concurrency=1)
    assert [rollout.prompt_id for rollout in eve.sample(PROMPTS, 1, SAMPLING, 0)] == ["p2"]
    assert [rollout.prompt_id for rollout in eve.sample(PROMPTS, 1, SAMPLING, 0)] == ["p2"]
    assert texts(stub.bodies) == ["1+1=", "2+2="]
    stub.faults = [(400, b"unknown field seed")] * 2
    with pytest.raises(AgentError, match="refuses every request: status 400: unknown field seed"):
        eve.sample(PROMPTS, 1, SAMPLING, 1)


@pytest.mark.parametrize(
    "line", ["{}", '{"request": "a", "text": 3}', '{"request": "a", "token_logps": ["x"]}']
)
def test_a_stored_reply_of_another_shape_is_named(stub, waits, tmp_path, line):
    (tmp_path / "eve.jsonl").write_text(line + "\n")
    with pytest.raises(StorageError, match=r"eve\.jsonl, line 1 is not a stored reply"):
        peer(stub, tmp_path, waits)


def message(tokens: list[tuple[str, float]], text: str) -> dict[str, Any]:
    content = [{"token": token, "logprob": logp} for token, logp in tokens]
    return {"choices": [{"message": {"content": text}, "logprobs": {"content": content}}]}


def test_log_probs_are_those_of_the_text_with_or_without_eos():
    spelled = [("a", -1.0), ("b", -2.0)]
    assert read_reply(message(spelled, "ab"), logprobs=True).token_logps == (-1.0, -2.0)
    assert read_reply(message([*spelled, ("<eos>", -3.0)], "ab"), logprobs=True).token_logps == (-1.0, -2.0)
    assert read_reply(message([("�", -1.0), ("�", -1.0)], "é"), logprobs=True).token_logps == ()
    with pytest.raises(ValueError, match="the reply has no log-probs"):
        read_reply({"choices": [{"message": {"content": "ab"}}]}, logprobs=True)


def test_the_mean_is_over_all_of_them_because_none_is_eos():
    known = Trajectory(1, "p", "eve", 0, "f", "ab", 1.0, "stop", (), (-1.0, -2.0), tokens=3)
    assert (known.logp_sum, known.logp_count, known.length) == (-3.0, 2, 3)
    assert replace(known, token_ids=(5, 6)).exchanged_logps == (-1.0,)


def test_texts_are_valid_unicode():
    assert read_reply(json.loads('{"choices": [{"message": {"content": "a\\ud800"}}]}'), False).text == "a?"
    assert read_reply({"choices": [{"message": {"content": None}}]}, False).text == ""
