"""Methods whose agents read each other's tokens refuse a second tokenizer, before a model is loaded."""

import pytest

from hacrl.recipe import RecipeError, parse_recipe
from hacrl.tasks.toy_models import models as toy_models
from hacrl.training.team import build_team
from hacrl.training.tokenizers import vocabulary
from helpers_sharing import byte_level_bpe


def recipe(*models: str, method: str = "opd"):
    agents = [{"name": f"agent-{n}", "model": model} for n, model in enumerate(models)]
    return parse_recipe({"agents": agents, "task": "digits", "method": method})


def test_a_second_tokenizer_is_refused_by_name_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(toy_models, "build", lambda name: pytest.fail(f"{name} was made"))
    with pytest.raises(RecipeError) as caught:
        build_team(recipe("toy:model-llama", "toy:state-a", "toy:model-qwen"))
    (problem,) = caught.value.problems
    assert problem.key == "agents.2.model"
    assert "opd needs one tokenizer" in problem.message
    assert "'toy:model-qwen' is not that of 'toy:model-llama'" in problem.message
    assert "sft_strongest" in problem.message


def test_directories_are_compared_by_what_they_hold(tmp_path):
    tokenizer = byte_level_bpe()
    for name in ("one", "same"):
        tokenizer.save_pretrained(tmp_path / name)
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(tmp_path / "other")
    one, same, other = (vocabulary(str(tmp_path / name)) for name in ("one", "same", "other"))
    assert one == same
    assert other == {**one, "<new>": len(one)}
