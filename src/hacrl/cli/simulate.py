"""`hacrl simulate`: what a step of a recipe would cost on other hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hacrl.cli.common import fail, finite, say, user_errors

if TYPE_CHECKING:
    from hacrl.analysis.simulate.engines import Place
    from hacrl.analysis.simulate.hardware import Hardware
    from hacrl.recipe import Recipe

HERE = "here"


def simulate(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe, a YAML file; none with --check.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change a key of the recipe: prompts_per_step=256"),
    ] = None,
    hardware: Annotated[
        str, typer.Option(help="h100, a100 (assumed figures), or here: one core of this machine, measured.")
    ] = "h100",
    run: Annotated[
        Path | None,
        typer.Option("--from", help="A run on that hardware: predictions are scaled to its measured times."),
    ] = None,
    prompt_tokens: Annotated[
        float, typer.Option(min=1, callback=finite, help="Mean length of a prompt.")
    ] = 200,
    response_tokens: Annotated[
        float | None,
        typer.Option(
            min=1, callback=finite, show_default="sampling.max_new_tokens", help="Mean length of a response."
        ),
    ] = None,
    engines: Annotated[
        str,
        typer.Option(
            help="vLLM draws for agents whose engine is vllm (recipe); for all, with a cache in what is left "
            "of each GPU (beside); or for all, in turns with training on all GPUs (turns)."
        ),
    ] = "recipe",
    check: Annotated[
        bool, typer.Option("--check", help="Predict measured steps on this machine instead.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Estimate time, network traffic and memory of a step; docs/simulate.md has the formulas.

    With --check, exit code 1 if a step of this machine is predicted more than 20% wrong.
    """
    with user_errors():
        if check:
            _check(markdown)
            return
        if recipe is None:
            raise ValueError("give a recipe, or --check")

        from hacrl.recipe import load_recipe

        changed = load_recipe(recipe, overrides or ())
        _forecast(changed, hardware, run, engines, prompt_tokens, response_tokens, markdown)


def _check(markdown: bool) -> None:
    from hacrl.analysis.simulate.check import check, check_tables
    from hacrl.analysis.tables import print_tables

    checked = check(_progress)
    print_tables(check_tables(checked), markdown=markdown)
    if not checked.passed:
        fail("a step is predicted more than 20% wrong", code=1)


def _forecast(
    recipe: Recipe,
    name: str,
    run: Path | None,
    engines: str,
    prompt_tokens: float,
    response_tokens: float | None,
    markdown: bool,
) -> None:
    from hacrl.analysis.doctor import examine
    from hacrl.analysis.simulate.engines import PLACES, engine_plans
    from hacrl.analysis.simulate.forecast import forecast, forecast_tables
    from hacrl.analysis.simulate.hardware import scaled_to
    from hacrl.analysis.simulate.work import Lengths
    from hacrl.analysis.tables import print_tables
    from hacrl.recipe import RecipeError

    if engines not in PLACES:
        raise ValueError(f"--engines {engines!r}: choose one of {', '.join(PLACES)}")
    found = examine(recipe)
    if found.errors:
        raise RecipeError("the recipe", found.errors)
    facts = {plan.name: plan.facts for plan in found.agents if plan.facts}
    for plan in found.agents:
        if plan.facts is None:
            raise ValueError(
                f"agent {plan.name}: nothing is known of {plan.model}: it is not on this machine"
            )
    chosen = _hardware(name)
    if run is not None:
        chosen = scaled_to(run, prompt_tokens, chosen)
    longest = recipe.sampling.max_new_tokens
    lengths = Lengths(prompt_tokens, min(response_tokens or longest, longest), longest)
    verifier = recipe.reward.verifier or (found.task.verifier if found.task else "math")
    plans = engine_plans(found, cast("Place", engines))
    cost = forecast(recipe, facts, lengths, chosen, verifier, plans)
    print_tables(forecast_tables(recipe, found.agents, cost, plans), markdown=markdown)
    say(
        f"{chosen.name}: {chosen.origin}. Prompts of {prompt_tokens:g} and responses of "
        f"{lengths.response:g} tokens on average, the longest {longest}."
    )


def _hardware(name: str) -> Hardware:
    from hacrl.analysis.simulate.check import measure_here
    from hacrl.analysis.simulate.hardware import GPUS

    if name == HERE:
        return measure_here(_progress)
    if name not in GPUS:
        raise ValueError(f"--hardware {name!r}: choose one of {', '.join([*GPUS, HERE])}")
    return GPUS[name]


def _progress(doing: str) -> None:
    typer.echo(f"... {doing}", err=True)
