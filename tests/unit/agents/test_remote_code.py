"""Code in a model's directory is never run: `trust_remote_code` is off, and no recipe can switch it on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hacrl.agents.errors import AgentError
from hacrl.agents.policy import Policy
from hacrl.recipe import RecipeError, parse_recipe
from helpers_agents import tiny_model, tiny_tokenizer


def test_code_in_a_model_directory_is_not_run(tmp_path: Path) -> None:
    model, ran = tmp_path / "model", tmp_path / "ran"
    tiny_model("llama").save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    (model / "evil.py").write_text(f"open({str(ran)!r}, 'w').write('ran')\nclass Evil: pass\n")
    for file, kinds in {
        "config.json": ("AutoConfig", "AutoModelForCausalLM"),
        "tokenizer_config.json": ("AutoTokenizer",),
    }.items():
        content = json.loads((model / file).read_text())
        references = {kind: [None, "evil.Evil"] if kind == "AutoTokenizer" else "evil.Evil" for kind in kinds}
        (model / file).write_text(json.dumps(content | {"auto_map": references}))
    Policy.load("ada", model)  # known to transformers: its own classes are used
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "evil"}))
    with pytest.raises(AgentError):
        Policy.load("ada", model)
    assert not ran.exists()


def test_a_recipe_cannot_switch_it_on() -> None:
    with pytest.raises(RecipeError, match="trust_remote_code"):
        parse_recipe({"agents": {"ada": {"model": "toy:tiny", "trust_remote_code": True}}, "task": "add"})
