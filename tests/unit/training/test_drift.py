"""The distance from the start that a run measures: golden values, and what a resumed run knows of it."""

import math

import pytest

from hacrl.agents.policy import Policy
from hacrl.training.drift import plain_text
from hacrl.training.run import Stopped
from hacrl.types import Prompt
from helpers_train import StopAt, make_agent, outcome, recipe, run

ON = {"prompts": 3, "drift_prompts": 4, "text_words": 40}


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    home = tmp_path_factory.mktemp("agents")
    return {
        "a": make_agent(home / "a", seed=0),
        "b": make_agent(home / "b", seed=1, arch="gpt2", cut="pairs"),
    }


@pytest.fixture(scope="module")
def finished(agents, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    return out, run(recipe(agents, evaluation=ON), out)


def test_an_agent_that_does_not_move_has_no_distance(agents, tmp_path):
    still = recipe(agents, evaluation=ON, optimiser={"learning_rate": 1e-12, "kl": 0.0}, steps=1)
    for result in run(still, tmp_path / "out")["agents"].values():
        drift = result["drift"]
        assert drift["kl"] == pytest.approx(0.0, abs=1e-5)
        assert drift["perplexity"] == pytest.approx(drift["perplexity_before"], rel=1e-6)


def test_distances_are_those_of_the_weights_before_and_after(agents, finished):
    out, summary = finished
    for name, model in agents.items():
        before, after = Policy.load(name, str(model)), Policy.load(name, str(out / "agents" / name))
        tokens = before.encoder.encode_response(plain_text(40))
        length = before.context_length - 1
        rows = [
            (before.encoder.start_ids, tokens[start : start + length])
            for start in range(0, len(tokens), length)
        ]
        drift = summary["agents"][name]["drift"]
        for policy, key in ((before, "perplexity_before"), (after, "perplexity")):
            logps = [logp for row in policy.score(rows) for logp in row]
            assert drift[key] == pytest.approx(math.exp(-sum(logps) / len(logps)), rel=1e-5)
        assert drift["perplexity"] != drift["perplexity_before"]
        assert 0 < abs(drift["kl"]) < 5


def test_the_text_is_read_once_where_another_run_measures_the_start(agents, finished, tmp_path):
    _, with_start = finished
    summary = run(recipe(agents, evaluation=ON | {"before": False}), tmp_path / "out")
    for name, result in summary["agents"].items():
        expected = with_start["agents"][name]["drift"]
        assert result["drift"] == {
            key: value for key, value in expected.items() if key != "perplexity_before"
        }


def test_a_resumed_run_measures_from_the_same_start(agents, finished, tmp_path):
    whole, _ = finished
    with pytest.raises(Stopped):
        run(recipe(agents, evaluation=ON), tmp_path / "out", display=StopAt(2))
    run(recipe(agents, evaluation=ON), tmp_path / "out", resume=True)
    assert outcome(tmp_path / "out") == outcome(whole)


def test_nothing_is_measured_unless_asked_for(agents, tmp_path):
    summary = run(recipe(agents, steps=1), tmp_path / "out")
    assert all(result["drift"] == {} for result in summary["agents"].values())


def test_plain_text_begins_with_bos_where_the_tokenizer_writes_one(agents):
    for name, model in agents.items():
        encoder = Policy.load(name, str(model)).encoder
        expected = encoder.encode_prompt(Prompt("p", "1"))[:1]
        assert encoder.start_ids in (expected, (encoder.eos_id,))
    assert len(plain_text(500).split()) == 500
