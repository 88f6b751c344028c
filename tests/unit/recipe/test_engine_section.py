from __future__ import annotations

from typing import Any

import pytest

from hacrl.analysis.doctor import examine
from hacrl.recipe.problems import RecipeError
from hacrl.recipe.validation import validated
from hacrl.training.team import _blueprint


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
        (
            "vllm",
            {"resources": {"ranks": 2}},
            "agents.0.resources.ranks: expected 1 with engine: vllm, got 2",
        ),
        ("vllm", {"device": "cuda:1"}, "agents.0.device: expected auto, cpu, cuda or cuda:0 with engine"),
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


def test_the_doctor_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hacrl.analysis.doctor.examination.importlib.util.find_spec", lambda name: None)
    errors = {problem.key: problem.message for problem in examine(validated(recipe("vllm"), "")).errors}
    assert errors["agents.0.engine"] == "needs the vllm package: pip install 'hacrl[vllm]'"
