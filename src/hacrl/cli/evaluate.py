"""`hacrl eval`: one agent alone on a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[str, typer.Argument(help="A saved agent's directory, a hub id or toy:NAME.")],
    task: Annotated[str, typer.Option(help="A built-in task, a data file, a directory or a hub id.")],
    prompts: Annotated[int, typer.Option(min=1, help="Test prompts to use, at most.")] = 256,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="the task's own",
            help="Samples per prompt for mean@k and pass@k; 0: greedy only.",
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest response, in tokens.")] = 1024,
    temperature: Annotated[float, typer.Option(help="Of the samples, above 0.")] = 1.0,
    verifier: Annotated[str | None, typer.Option(show_default="the task's own", help="Verifier.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:0 or auto.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    output: Annotated[Path | None, typer.Option("--json", help="Write the result here as JSON.")] = None,
) -> None:
    """Measure one agent alone: greedy accuracy, mean@k and pass@k, with 95% intervals."""
    from pydantic import ValidationError
    from rich.console import Console

    from hacrl import tasks
    from hacrl.agents.blueprint import Blueprint
    from hacrl.cli.common import evaluation_table, user_errors
    from hacrl.recipe import AgentSettings, RecipeError, SamplingSettings
    from hacrl.recipe.validation import problems_in
    from hacrl.rewards import Reward, Rewarder
    from hacrl.training.evaluation import evaluate as measure
    from hacrl.training.team import best_of

    with user_errors():
        try:
            settings = AgentSettings(name="agent", model=model, device=device)
            sampling = SamplingSettings(max_new_tokens=max_new_tokens, temperature=temperature)
        except ValidationError as error:
            raise RecipeError("hacrl eval", problems_in(error)) from error
        loaded = tasks.load(task)
        agent = Blueprint(settings).load()
        with Rewarder([Reward(verifier or loaded.verifier)]) as rewarder:
            k = best_of(loaded) if samples is None else samples
            result = measure(agent, loaded.test[:prompts], rewarder, sampling, k, seed)
    Console().print(evaluation_table(f"{model} on {loaded.name}", result))
    if output is not None:
        output.write_text(json.dumps(result.as_dict(), indent=2) + "\n", encoding="utf-8")
