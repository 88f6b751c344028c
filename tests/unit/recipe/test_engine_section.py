from __future__ import annotations

from typing import Any

import pytest

from hacrl.analysis.doctor import examine
from hacrl.recipe.problems import RecipeError
from hacrl.recipe.validation import validated
from hacrl.training.team_setup import _blueprint
from helpers_agents import tiny_model
from helpers_vllm_server import FakeServer, serve_vllm


def recipe(engine: object, **agent: Any) -> dict[str, Any]:
    agents = [{"name": "a", "model": "some/model", "engine": engine, **agent}]
    return {"agents": agents, "task": {"name": "digits", "train": 200}, "sampling": {"max_rows": 7}}


def test_engines_by_name_and_by_settings() -> None:
    assert validated(recipe("builtin"), "").resolved() == validated(recipe(None), "").resolved()
    assert _blueprint(validated(recipe("builtin"), ""), "a", "float32", None).agent.engine is None
    blueprint = _blueprint(validated(recipe({"correction": "truncated"}), ""), "a", "float32", None)
    settings = blueprint.agent.engine
    assert settings is not None
    assert (settings.correction, settings.correction_cap) == ("truncated", 2.0)
    assert blueprint.sampling.max_rows == 7
    again = validated(validated(recipe("vllm"), "").resolved(), "")
    assert again == validated(recipe({"name": "vllm"}), "")


@pytest.mark.parametrize(
    ("engine", "agent", "message"),
    [
        ("vlm", {}, r"agents.0.engine.name: expected 'vllm', got 'vlm'; did you mean 'vllm'\?"),
        ({"cap": 3}, {}, "agents.0.engine.cap: unknown key"),
        ({"tensor_parallel": 2}, {}, "engine.tensor_parallel: expected a divisor of the agent's 1 ranks"),
        ({"tensor_parallel": 2}, {"device": "cpu"}, "engine.tensor_parallel: expected 1 on CPUs, got 2"),
        ({"tensor_parallel": 2}, {"lora": {}}, "engine.tensor_parallel: expected 1 with lora, got 2"),
        ({"tensor_parallel": 2, "url": "http://host"}, {}, "tensor_parallel: has no effect with engine.url"),
        ("vllm", {"device": "cuda:1"}, "agents.0.device: expected auto, cpu, cuda or cuda:0 with engine"),
        ({"url": "127.0.0.1:8000"}, {}, "agents.0.engine.url: expected an address like https://host/v1"),
        ({"merge_adapters": True}, {}, "agents.0.engine.merge_adapters: has no effect without lora"),
        ({"weights_folder": "w"}, {}, "agents.0.engine.weights_folder: has no effect without engine.url"),
        ({"retries": 5}, {}, "agents.0.engine.retries: has no effect without engine.url"),
    ],
)
def test_mistakes_name_the_key(engine: object, agent: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validated(recipe(engine, **agent), "")


def test_one_process_has_one_vllm() -> None:
    settings = recipe("vllm")
    settings["agents"].append(settings["agents"][0] | {"name": "b"})
    with pytest.raises(RecipeError, match=r"agents.1.engine: expected builtin.*runtime: ray every agent"):
        validated(settings, "")
    assert all(agent.engine for agent in validated(settings | {"runtime": "ray"}, "").agents)
    settings["agents"][1]["engine"] = "builtin"
    validated(settings, "")


@pytest.mark.parametrize(
    ("change", "fine"),
    [
        ({}, True),
        ({"lora": {"rank": 4}}, True),
        ({"lora": None}, False),
        ({"model": "other/model"}, False),
        ({"engine": {"name": "vllm", "cache_gigabytes": 1}}, False),
        ({"engine": {"name": "vllm", "merge_adapters": True}}, False),
    ],
)
def test_agents_that_train_adapters_of_one_model_share_an_engine(change: Any, fine: bool) -> None:
    settings = recipe("vllm", lora={"rank": 8})
    settings["agents"].append(settings["agents"][0] | {"name": "b"} | change)
    if fine:
        validated(settings, "")
        return
    with pytest.raises(RecipeError, match=r"agents.1.engine: expected builtin.*adapters of one model"):
        validated(settings, "")


def test_engines_are_split_over_the_ranks_of_a_machine() -> None:
    for size, fine in ((1, True), (2, True), (4, True), (3, False), (8, False)):
        resources = {"ranks": 8, "nodes": 2, "gpus": 1}
        settings = recipe({"name": "vllm", "tensor_parallel": size}, resources=resources)
        settings["runtime"] = {"name": "ray", "address": "host:6379"}
        if fine:
            validated(settings, "")
            continue
        with pytest.raises(RecipeError, match=f"a divisor of the agent's 4 ranks on a machine, got {size}"):
            validated(settings, "")


def served(url: str, name: str = "a", **agent: Any) -> dict[str, Any]:
    return {"name": name, "model": "some/model", "engine": {"name": "vllm", "url": url}, **agent}


def test_servers_are_outside_the_process_and_the_devices() -> None:
    agents = [
        served("http://127.0.0.1:8000", "a", device="cuda:1"),
        served("http://127.0.0.1:8001", "b"),
        {"name": "c", "model": "some/model", "engine": "vllm", "device": "cpu"},
    ]
    settings = recipe("builtin") | {"agents": agents}
    assert [agent.engine is not None for agent in validated(settings, "").agents] == [True] * 3
    with pytest.raises(RecipeError) as error:
        validated(settings | {"runtime": {"share_devices": True}}, "")
    assert [problem.key for problem in error.value.problems] == ["agents.2.engine"]


@pytest.mark.parametrize(
    ("first", "second", "fine"),
    [
        ({}, {}, False),
        ({"source": "frozen"}, {}, False),
        ({"source": "frozen"}, {"source": "frozen"}, True),
        ({"source": "frozen"}, {"source": "frozen", "model": "other/model"}, False),
    ],
)
def test_a_learner_has_a_server_for_itself(first: Any, second: Any, fine: bool) -> None:
    agents = [
        served("http://host:8000", "a", **first),
        served("http://host:8000/v1/", "b", **second),
        {"name": "c", "model": "some/model"},
    ]
    settings = recipe("builtin") | {"agents": agents}
    if fine:
        validated(settings, "")
        return
    with pytest.raises(RecipeError, match=r"agents.1.engine.url: expected another server than agent 'a' has"):
        validated(settings, "")


def test_the_doctor_asks_the_server() -> None:
    with serve_vllm(FakeServer(tiny_model("qwen3"))) as server:
        server.development = False
        frozen = {"source": "frozen", "samples_per_prompt": 1}
        for agent, wanted in (({}, ["agents.0.engine.url"]), (frozen, [])):
            agents = [served(server.url, **agent), {"name": "b", "model": "some/model"}]
            found = examine(validated(recipe("builtin") | {"agents": agents}, ""))
            errors = [problem for problem in found.errors if "engine" in problem.key]
            assert [problem.key for problem in errors] == wanted
            assert all("start it with VLLM_SERVER_DEV_MODE=1" in problem.message for problem in errors)
            assert not any("engine" in note.key for note in found.notes)
        agents = [served(server.url)]
    found = examine(validated(recipe("builtin") | {"agents": agents}, ""))
    (note,) = [note for note in found.notes if note.key == "agents.0.engine.url"]
    assert note.message.startswith("not checked: agent 'a', http://127.0.0.1:")


def test_the_doctor_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hacrl.analysis.doctor.examination.importlib.util.find_spec", lambda name: None)
    errors = {problem.key: problem.message for problem in examine(validated(recipe("vllm"), "")).errors}
    assert errors["agents.0.engine"] == "needs the vllm package: pip install 'hacrl[vllm]'"
