"""Runs in bf16: recorded, resumed exactly, measured; nothing else may take another dtype's place."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hacrl.agents import precision
from hacrl.agents.blueprint import Blueprint
from hacrl.agents.responder import Responder
from hacrl.analysis.compare.comparison import with_dtypes
from hacrl.recipe import RecipeError
from hacrl.runs.reader import RunReader
from hacrl.runtime.local_runtime import LocalRuntime
from hacrl.training.run import Stopped
from helpers_compare import plan
from helpers_train import Silent, StopAt, final_weights, make_agent, metrics, outcome, recipe, run


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    return {
        "ada": make_agent(folder / "ada", 1),
        "bob": make_agent(folder / "bob", 2, arch="qwen3", width=48),
    }


@pytest.fixture
def speedup(monkeypatch):
    """What is measured for agents of any size, and how often."""
    found = {"is": 2.0, "times": 0}

    def measured(hidden, feed_forward):
        found["times"] += 1
        return found["is"]

    monkeypatch.setattr(precision, "SMALL", 0)
    monkeypatch.setattr(precision, "bf16_speedup", measured)
    return found


def settings(agents, **dtypes):
    values = recipe(agents)
    for agent in values["agents"]:
        agent["dtype"] = dtypes.get(agent["name"], "auto")
    return values


def dtypes_in(out: Path) -> dict[str, str]:
    return RunReader(out).dtypes


def test_a_resumed_run_keeps_the_measured_dtype_and_is_bit_identical(agents, tmp_path, speedup):
    run(settings(agents, bob="float32"), tmp_path / "whole")
    with pytest.raises(Stopped):
        run(settings(agents, bob="float32"), tmp_path / "stopped", display=StopAt(2))
    speedup["is"], before = 0.1, speedup["times"]  # measured now, it would be fp32
    run(settings(agents, bob="float32"), tmp_path / "stopped", resume=True)
    assert speedup["times"] == before
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
    assert dtypes_in(tmp_path / "whole") == {"ada": "bfloat16", "bob": "float32"}
    (last,) = (tmp_path / "whole" / "checkpoints").glob("step_00000004")
    assert json.loads((last / "trainer.json").read_text())["dtypes"] == dtypes_in(tmp_path / "whole")
    trained = {name: final_weights(tmp_path / "whole", name) for name in agents}
    assert {w.dtype for w in trained["ada"].values()} == {torch.bfloat16}
    assert {w.dtype for w in trained["bob"].values()} == {torch.float32}


def test_another_dtype_is_refused_and_the_same_by_another_name_is_not(agents, tmp_path):
    """Agents this small compute in fp32 without any measurement."""
    with pytest.raises(Stopped):
        run(settings(agents), tmp_path / "run", display=StopAt(2))
    with pytest.raises(RecipeError, match=r"agents\.ada\.dtype: .?float32.? before, .?bfloat16.? now"):
        run(settings(agents, ada="bfloat16"), tmp_path / "run", resume=True)
    run(settings(agents, ada="float32"), tmp_path / "run", resume=True)


def test_a_checkpoint_of_an_older_version_has_no_dtype_to_compare(agents, tmp_path, monkeypatch):
    monkeypatch.setattr("hacrl.training.run.Run._write", without_dtypes(monkeypatch))
    with pytest.raises(Stopped):
        run(settings(agents), tmp_path / "run", display=StopAt(2))
    config = tmp_path / "run" / "config.json"
    kept = json.loads(config.read_text())
    kept.pop("dtypes")
    config.write_text(json.dumps(kept))
    run(settings(agents), tmp_path / "run", resume=True)


def without_dtypes(monkeypatch):
    from hacrl.training.run import Run

    write = Run._write

    def older(self, directory):
        contents = write(self, directory)
        trainer = contents["trainer.json"]
        trainer.pop("dtypes")
        for agent in trainer["recipe"]["agents"]:
            agent.pop("dtype")
        return contents

    return older


def test_the_drift_between_drawing_and_training_is_logged_and_harmless(agents, tmp_path, monkeypatch):
    """Only in bf16: ratios are taken to the log-probs that training computes itself."""
    alone = {**settings(agents, ada="bfloat16"), "method": "gspo"}
    run(alone, tmp_path / "plain")
    decode = Responder._decode

    def drifting(self, jobs, sampling):
        drawn = decode(self, jobs, sampling)
        off = 0.5 if self._agent == "ada" else 0.0
        return [replace(each, token_logps=tuple(logp - off for logp in each.token_logps)) for each in drawn]

    monkeypatch.setattr(Responder, "_decode", drifting)
    run(alone, tmp_path / "run")
    steps = [line for line in metrics(tmp_path / "run") if line.get("agent/ada/updates", 0) > 0]
    assert steps
    for line in steps:
        assert 0.25 < line["agent/ada/engine/logp_difference_max"] < 0.75
        assert line["agent/ada/engine/rescored"] > 0
        assert line["agent/ada/engine/weight"] == 1.0
    assert not any("bob/engine" in key for line in steps for key in line)
    for name in ("ada", "bob"):
        plain = final_weights(tmp_path / "plain", name)
        for key, weight in final_weights(tmp_path / "run", name).items():
            assert torch.equal(weight, plain[key]), f"{name}: {key}"


def test_every_process_of_an_agent_is_told_its_dtype(agents, tmp_path, speedup, monkeypatch):
    """It is chosen once, where the run is started: ranks that measured it themselves could disagree."""
    seen: list[Blueprint] = []
    load = LocalRuntime.load

    def loaded(self, blueprints):
        seen.extend(blueprints)
        return load(self, blueprints)

    monkeypatch.setattr(LocalRuntime, "load", loaded)
    run(settings(agents) | {"steps": 1}, tmp_path / "run", display=Silent())
    assert [blueprint.agent.dtype for blueprint in seen] == ["bfloat16", "bfloat16"]
    assert speedup["times"] == 2


def test_a_comparison_measures_once_for_all_its_runs(tmp_path, speedup, monkeypatch):
    monkeypatch.setattr("hacrl.agents.blueprint.sizes_of", lambda model: precision.Sizes(1, 8, 16))
    planned = plan(tmp_path, ["hacpo", "gspo"])
    assert {tuple(run.dtypes.values()) for run in with_dtypes(planned)} == {("bfloat16", "bfloat16")}
    begun = planned.runs()[2].directory.config
    begun.parent.mkdir(parents=True)
    recorded = {"ada": "float32", "bob": "bfloat16"}
    kept = {"recipe": planned.runs()[2].recipe.resolved(), "versions": {}, "dtypes": recorded}
    begun.write_text(json.dumps(kept))
    before = speedup["times"]
    assert [run.dtypes for run in with_dtypes(planned)] == [recorded] * 4
    assert speedup["times"] == before
