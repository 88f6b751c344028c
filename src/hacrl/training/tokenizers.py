"""Whether agents can read each other's tokens, found out before any model is loaded."""

from __future__ import annotations

from transformers import AutoTokenizer

from hacrl.agents import nursery
from hacrl.agents.nursery_tokenizers import make_tokenizer
from hacrl.config import Recipe, RecipeError
from hacrl.config.problems import Problem


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
    """The number of every token; an agent of the nursery need not exist yet."""
    kind, _, name = model.partition(":")
    if kind == "nursery" and name in nursery.AGENTS:
        tokenizer = make_tokenizer(nursery.AGENTS[name].body.cut)
    else:
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    return dict(tokenizer.get_vocab())
