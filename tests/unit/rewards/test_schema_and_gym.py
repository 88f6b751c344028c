from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from hacrl.rewards import Limits, Reward, Rewarder, Score
from hacrl.rewards.verifiers import get_verifier
from hacrl.types import Prompt

SCHEMA = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0}}}


@pytest.fixture(scope="module")
def schema_rewarder() -> Iterator[Rewarder]:
    pytest.importorskip("jsonschema")
    with Rewarder([Reward("json_schema", gold="schema")], limits=Limits(30), max_unscorable=1.0) as made:
        yield made


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)])
def test_json_schema(schema_rewarder: Rewarder, schema: object) -> None:
    responses = [
        '{"age": 3}',
        'Here:\n```json\n{"age": 3, "name": "x"}\n```\nDone.',
        '{"age": -1}',
        '{"age": "3"}',
        '{"age": 3',
        "[" * 100_000,
    ]
    prompt = Prompt("p", "?", columns={"schema": schema})
    scores = schema_rewarder.score([prompt] * len(responses), responses, [()] * len(responses))
    assert [score.reward for score in scores] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_an_invalid_schema_makes_the_response_unscorable(schema_rewarder: Rewarder) -> None:
    (score,) = schema_rewarder.score([Prompt("p", "?", columns={"schema": {"type": 3}})], ["{}"], [()])
    assert score.cause == "exception"
    assert "SchemaError" in score.detail


@pytest.mark.parametrize("name", ["json_schema", "reasoning_gym"])
def test_a_missing_package_is_reported_when_the_verifier_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("jsonschema", "reasoning_gym"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"the verifier `{name}` needs .*: pip install 'hacrl"):
        get_verifier(name).load()


def test_reasoning_gym_scores_with_the_tasks_own_scorer() -> None:
    reasoning_gym = pytest.importorskip("reasoning_gym")
    entry = reasoning_gym.create_dataset("chain_sum", size=1, seed=3)[0]
    gold = json.loads(json.dumps({"dataset": "chain_sum", "entry": entry}))
    responses = [
        f"<answer>{entry['answer']}</answer>",
        rf"\boxed{{{entry['answer']}}}",
        entry["answer"],
        "<answer>x</answer>",
    ]
    prompt = Prompt("p", entry["question"], columns={"reasoning_gym": gold})
    with Rewarder([Reward("reasoning_gym")], limits=Limits(30)) as rewarder:
        scores = rewarder.score([prompt] * 4, responses, [()] * 4)
    assert scores[:3] == [Score(1.0)] * 3
    assert scores[3].reward is not None
    assert scores[3].reward < 0.1
