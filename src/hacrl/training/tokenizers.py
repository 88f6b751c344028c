"""The check that all agents have the same tokenizer, made before any model is loaded."""

from __future__ import annotations

from transformers import AutoTokenizer

from hacrl.recipe import Recipe, RecipeError
from hacrl.recipe.problems import Problem
from hacrl.tasks.toy_models import models as toy_models
from hacrl.tasks.toy_models.tokenizers import make_tokenizer


def refuse_other_tokenizers(recipe: Recipe) -> None:
    """Raise a `RecipeError` unless all agents number the same tokens in the same way."""
    first, *others = recipe.agents
    expected = vocabulary(first.model)
    problems = [
        Problem(
            f"agents.{position}.model",
            f"method {recipe.method.name} needs one tokenizer for all agents, but that of {other.model!r} is "
            f"not that of {first.model!r}: take models of one family, or sft_strongest, which shares texts",
        )
        for position, other in enumerate(others, start=1)
        if vocabulary(other.model) != expected
    ]
    if problems:
        raise RecipeError("recipe", problems)


def vocabulary(model: str) -> dict[str, int]:
    """Token -> id; a toy model need not have been made yet."""
    kind, _, name = model.partition(":")
    if kind == "toy" and name in toy_models.AGENTS:
        tokenizer = make_tokenizer(toy_models.AGENTS[name].body.cut)
    else:
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    return dict(tokenizer.get_vocab())
