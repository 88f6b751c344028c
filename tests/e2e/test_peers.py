"""Peers that only respond: they are verified, shared and shown like agents, and never change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hacrl.recipe import RecipeError
from hacrl.training.run import Stopped
from helpers_async import Threads, asynchronous, timeless
from helpers_train import StopAt, final_weights, make_agent, metrics, outcome, recipe, responses, run


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("agents")
    return {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3, cut="digit-pairs")}


@pytest.fixture(scope="module")
def settings(models) -> dict[str, Any]:
    """Ada learns, eve only responds."""
    both = recipe(models, method="commons", evaluation={"prompts": 4}, checkpoint={"every": 2})
    both["agents"][1]["source"] = "frozen"
    return both


@pytest.fixture(scope="module")
def frozen(settings, tmp_path_factory) -> Path:
    """A finished run with a frozen peer."""
    out = tmp_path_factory.mktemp("frozen") / "run"
    run(settings, out)
    return out


def test_a_frozen_peer_responds_and_is_measured_but_neither_trained_nor_saved(frozen):
    summary = json.loads((frozen / "summary.json").read_text())
    assert list(summary["agents"]) == ["ada"]
    assert list(summary["peers"]) == ["eve"]
    assert summary["agents"]["ada"]["updates"] > 4 * 2
    assert summary["peers"]["eve"]["rollouts"] == 4 * 4 * 4
    assert summary["peers"]["eve"]["before"]["digits"]["greedy"]["problems"] == 4
    last = metrics(frozen)[-1]
    assert {"agent/eve/reward", "agent/eve/capability", "cross/eve->ada/rows"} <= last.keys()
    assert not {"agent/eve/loss", "agent/eve/updates", "cross/ada->eve/rows"} & last.keys()
    assert [path.name for path in (frozen / "agents").iterdir()] == ["ada"]
    assert [path.name for path in frozen.glob("checkpoints/*/agents/*")] == ["ada", "ada"]


def test_its_weights_are_those_it_came_with(frozen):
    texts = [path.read_text() for path in frozen.glob("trajectories/*")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    fingerprints = {
        source: {line["fingerprint"] for line in lines if line["source"] == source}
        for source in ("ada", "eve")
    }
    assert len(fingerprints["eve"]) == 1
    assert len(fingerprints["ada"]) == 4


def test_a_stopped_run_goes_on_bit_by_bit(settings, frozen, tmp_path):
    with pytest.raises(Stopped):
        run(settings, tmp_path / "run", display=StopAt(1))
    run(settings, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(frozen)


def test_without_waiting_for_each_other(settings, frozen, tmp_path, monkeypatch):
    monkeypatch.setattr("hacrl.training.team.make_runtime", lambda recipe: Threads(recipe.runtime, {}))
    run(asynchronous(settings, every=2, max_staleness=0), tmp_path / "run")
    assert timeless(tmp_path / "run") == timeless(frozen)


def test_a_method_that_shares_nothing_does_not_ask_it(settings, models, tmp_path):
    """So that a comparison with training alone is one, and nobody pays for responses that nobody uses."""
    run(settings | {"method": "gspo"}, tmp_path / "with")
    run(recipe({"ada": models["ada"]}, method="gspo", evaluation={"prompts": 4}), tmp_path / "without")
    assert responses(tmp_path / "with") == responses(tmp_path / "without")
    with_peer, alone = (final_weights(tmp_path / out, "ada") for out in ("with", "without"))
    assert all((with_peer[key] == alone[key]).all() for key in alone)


@pytest.mark.parametrize("method", ["hacpo", "naive", "ftis", "graft", "luffy", "swarm", "sft_strongest"])
def test_every_sharing_method_can_learn_from_a_frozen_peer(settings, method, tmp_path):
    run(settings | {"method": method, "steps": 1, "evaluation": {"before": False}}, tmp_path / "run")
    (line,) = metrics(tmp_path / "run")
    assert line["agent/ada/updates"] > 0
    assert "agent/eve/reward" in line
    assert "agent/eve/updates" not in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "thawed"}, "agents.1.source: expected 'frozen'"),
        ({"source": {}}, "agents.1.source: expected frozen, a mapping with url"),
        ({"source": "frozen", "lora": {}}, "agents.1.lora: has no effect with source frozen"),
        ({"source": {"file": "x.jsonl"}, "system_prompt": "Hi"}, "agents.1.system_prompt: has no effect"),
        ({"source": {"url": "http://me:secret@host/v1"}}, "agents.1.source.url: expected an address"),
        (
            {"source": {"url": "http://host/v1", "key_env": "sk-secret"}},
            "agents.1.source.key_env: expected the name of an environment variable",
        ),
    ],
)
def test_mistakes_in_a_source_are_named(settings, change, message, tmp_path):
    agents = [settings["agents"][0], {"name": "eve", "model": "m"} | change]
    with pytest.raises(RecipeError) as error:
        run(settings | {"agents": agents}, tmp_path / "run")
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_somebody_has_to_train_and_a_peer_learns_from_nobody(settings, tmp_path):
    everyone = [agent | {"source": "frozen"} for agent in settings["agents"]]
    with pytest.raises(RecipeError, match="expected at least one agent that trains"):
        run(settings | {"agents": everyone}, tmp_path / "run")
    backwards = {"exchange": {"topology": [["ada", "eve"]]}}
    with pytest.raises(RecipeError, match="agent 'eve' only responds: it learns from nobody"):
        run(settings | backwards, tmp_path / "run")


@pytest.mark.parametrize("method", ["hacpo", "naive", "ftis", "graft"])
def test_a_method_with_ratios_refuses_responses_without_log_probs(settings, method, tmp_path):
    for source in ({"file": "x.jsonl"}, {"url": "http://host/v1"}):
        agents = [settings["agents"][0], {"name": "eve", "model": "m", "source": source}]
        with pytest.raises(RecipeError, match=f"agents.1.source: method {method} takes ratios"):
            run(settings | {"agents": agents, "method": method}, tmp_path / "run")


def test_a_method_in_which_agents_score_each_other_refuses_what_has_no_model(settings, tmp_path):
    agents = [settings["agents"][0], {"name": "eve", "source": {"file": "x.jsonl"}}]
    with pytest.raises(RecipeError, match="expected frozen or null with method opd"):
        run(settings | {"agents": agents, "method": "opd"}, tmp_path / "run")
