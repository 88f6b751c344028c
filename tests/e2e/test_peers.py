"""Peers that only respond: they are verified, shared and shown like agents, and never change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hacrl import tasks
from hacrl.agents.errors import AgentError
from hacrl.recipe import RecipeError
from hacrl.training.run import Stopped
from helpers_async import Threads, asynchronous, timeless
from helpers_endpoint import KEY, Stub, serve
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
    monkeypatch.setattr("hacrl.training.team_setup.make_runtime", lambda recipe: Threads(recipe.runtime, {}))
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
        ({"source": {"url": "http://[/v1"}}, "agents.1.source.url: expected an address"),
        ({"source": {"url": "http://[1:2]/v1"}}, "agents.1.source.url: expected the address"),
        (
            {"source": {"url": "http://host:99999/v1"}},
            "agents.1.source.url: expected the address of a server",
        ),
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


DIGITS = tasks.load("digits", train=90, test=30)
ANSWERS = {prompt.text: str(prompt.columns["answer"]) for prompt in (*DIGITS.train, *DIGITS.test)}


@pytest.fixture
def stub() -> Iterator[Stub]:
    """Knows the answers, and gives some of them, by the request's seed."""
    with serve(Stub()) as stub:
        stub.respond = lambda body: (
            ANSWERS[body["messages"][-1]["content"]] if body["seed"] % 3 else str(body["seed"] % 97)
        )
        yield stub


def with_peer(settings: dict[str, Any], **peer: Any) -> dict[str, Any]:
    """Ada, and another peer in eve's place, on exact answers."""
    return settings | {"agents": [settings["agents"][0], {"name": "eve"} | peer]}


def asking(settings: dict[str, Any], stub: Stub, **source: Any) -> dict[str, Any]:
    endpoint = {"url": stub.url, "concurrency": 1, "retries": 0, **source}
    return with_peer(settings, model="served", samples_per_prompt=2, source=endpoint)


def exact(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [float(text == ANSWERS[prompt]) for prompt, text in zip(prompts, completions, strict=True)]


def test_an_endpoints_responses_are_verified_learned_from_and_counted(settings, stub, tmp_path, monkeypatch):
    monkeypatch.setenv("EVE_KEY", KEY)
    run(asking(settings, stub, key_env="EVE_KEY"), tmp_path / "run", reward_funcs=[exact])
    peer = json.loads((tmp_path / "run" / "summary.json").read_text())["peers"]["eve"]
    assert peer["requests"] == peer["rollouts"] == len(stub.bodies) == 4 * 4 * 2
    assert peer["response_tokens"] == peer["generated_tokens"] > peer["requests"]
    assert peer["prompt_tokens"] == 7 * peer["requests"]
    lines = metrics(tmp_path / "run")[1:]
    assert all(0.3 < line["agent/eve/reward"] < 1 for line in lines)
    assert sum(line["cross/eve->ada/rows"] for line in lines) > 0
    assert not any(KEY in path.read_text() for path in (tmp_path / "run").rglob("*.json*"))


def test_log_probs_of_an_endpoint_are_enough_for_ratios(settings, stub, tmp_path):
    """All tokens have log-prob -0.25: the ratio is the learner's mean probability over exp(-0.25)."""
    changed = asking(settings, stub, logprobs=True) | {"method": {"name": "hacpo", "delta": 1.0}, "steps": 1}
    run(changed, tmp_path / "run", reward_funcs=[exact])
    lines = (tmp_path / "run/trajectories/step_000001.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert all(set(t["token_logps"]) == {-0.25} for t in found if t["source"] == "eve")
    ratio = metrics(tmp_path / "run")[-1]["cross/eve->ada/ratio/mean"]
    assert 0.01 < ratio < 0.5  # an untrained model gives each of about 20 characters a twentieth


def test_a_run_that_an_endpoint_ended_goes_on_without_asking_twice(settings, stub, tmp_path):
    run(asking(settings, stub), tmp_path / "whole", reward_funcs=[exact])
    whole = len(stub.bodies)
    ordinary = stub.respond

    def fails_once(body: dict[str, Any]) -> str:
        if len(stub.bodies) == whole + 13:
            stub.faults.append((401, b"expired"))
        return ordinary(body)

    stub.respond = fails_once
    with pytest.raises(AgentError, match="status 401: expired"):
        run(asking(settings, stub), tmp_path / "run", reward_funcs=[exact])
    run(asking(settings, stub), tmp_path / "run", resume=True, reward_funcs=[exact])
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert len(stub.bodies) == 2 * whole + 1


SCRIPT = """import json, sys
from pathlib import Path
from test_peers import exact, run
run(json.loads(sys.argv[1]), Path(sys.argv[2]), reward_funcs=[exact])"""


@pytest.mark.slow
def test_a_killed_run_pays_at_most_for_what_was_on_its_way(settings, stub, tmp_path):
    changed = asking(settings, stub)
    run(changed, tmp_path / "whole", reward_funcs=[exact])
    whole, ordinary = len(stub.bodies), stub.respond
    victims: list[subprocess.Popen[bytes]] = []

    def kills(body: dict[str, Any]) -> str:
        if len(stub.bodies) == whole + 13:
            victims[0].kill()
            victims[0].wait()
        return ordinary(body)

    stub.respond = kills
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent)])
    command = [sys.executable, "-c", SCRIPT, json.dumps(changed), str(tmp_path / "run")]
    victims.append(subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}))
    assert victims[0].wait(timeout=120) == -signal.SIGKILL
    assert len(stub.bodies) == whole + 13
    run(changed, tmp_path / "run", resume=True, reward_funcs=[exact])
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert len(stub.bodies) == 2 * whole + 1


def write_log(path: Path, every: int) -> dict[str, Any]:
    rows = [
        {"question": prompt.text, "answers": [ANSWERS[str(prompt.text)], "?"]}
        for prompt in DIGITS.train[::every]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"file": str(path), "prompt": "question", "response": "answers"}


def test_a_file_responds_to_the_prompts_that_it_has(settings, tmp_path):
    changed = with_peer(settings, source=write_log(tmp_path / "log.jsonl", every=2))
    with pytest.raises(Stopped):
        run(changed, tmp_path / "run", reward_funcs=[exact], display=StopAt(2))
    run(changed, tmp_path / "run", resume=True, reward_funcs=[exact])
    known = {prompt.id for prompt in DIGITS.train[::2]}
    for path in sorted((tmp_path / "run" / "trajectories").iterdir()):
        found = [json.loads(line) for line in path.read_text().splitlines()]
        asked = {t["prompt_id"] for t in found if t["source"] == "ada"}
        assert len(asked) == 4  # no share of the prompts is set aside for the file
        assert {t["prompt_id"] for t in found if t["source"] == "eve"} == asked & known
        assert all((t["reward"] == 1) == (t["text"] != "?") for t in found if t["source"] == "eve")
    assert metrics(tmp_path / "run")[-1]["agent/ada/updates"] > 2
    (tmp_path / "log.jsonl").write_text((tmp_path / "log.jsonl").read_text() * 2)
    with pytest.raises(RecipeError, match=r"agents\.eve: its model or file has changed since"):
        run(changed | {"steps": 5}, tmp_path / "run", resume=True)


def test_a_file_for_other_prompts_is_refused(settings, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt": "Who?", "response": "Me."}\n')
    changed = with_peer(settings, source={"file": str(tmp_path / "log.jsonl")})
    with pytest.raises(
        RecipeError, match=r"agents\.1\.source\.prompt: no training prompt of task digits is in"
    ):
        run(changed, tmp_path / "run")


@pytest.mark.parametrize("method", ["luffy", "sgt", "swarm", "xgrpo", "sft_strongest"])
def test_methods_without_ratios_learn_from_a_file(settings, method, tmp_path):
    """A NaN in the place of unknown log-probs would show in every weight."""
    changed = with_peer(settings, source=write_log(tmp_path / "log.jsonl", every=1))
    short = {"method": method, "steps": 1, "evaluation": {"before": False}}
    run(changed | short, tmp_path / "run", reward_funcs=[exact])
    assert all(weight.isfinite().all() for weight in final_weights(tmp_path / "run", "ada").values())
    (line,) = metrics(tmp_path / "run")
    assert line["agent/ada/updates"] > 0
    assert "cross/eve->ada/ratio/mean" not in line or method == "swarm"
