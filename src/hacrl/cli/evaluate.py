"""`hacrl eval`: one agent alone on a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[str, typer.Argument(help="A saved agent's directory, a hub id or toy:NAME.")],
    task: Annotated[str, typer.Option(help="A built-in task, a data file, a directory or a hub id.")],
    prompts: Annotated[int, typer.Option(help="Most test prompts to use.")] = 256,
    samples: Annotated[
        int | None, typer.Option(help="Samples per prompt for mean@k and pass@k; 0: greedy only.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 1024,
    temperature: Annotated[float, typer.Option(help="Of the samples.")] = 1.0,
    verifier: Annotated[str | None, typer.Option(help="Another verifier than the task's own.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:0 or auto.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    output: Annotated[Path | None, typer.Option("--json", help="Write the result here as JSON.")] = None,
) -> None:
    """Measure one agent alone: greedy accuracy, mean@k and pass@k, with 95% intervals."""
    from rich.console import Console

    from hacrl import tasks
    from hacrl.agents.blueprint import Blueprint
    from hacrl.cli.common import evaluation_table, user_errors
    from hacrl.recipe import AgentSettings, SamplingSettings
    from hacrl.rewards import Reward, Rewarder
    from hacrl.training.evaluation import evaluate as measure
    from hacrl.training.team import best_of

    with user_errors():
        questions = tasks.load(task)
        sampling = SamplingSettings(max_new_tokens=max_new_tokens, temperature=temperature)
        agent = Blueprint(AgentSettings(name="agent", model=model, device=device)).load()
        with Rewarder([Reward(verifier or questions.verifier)]) as rewarder:
            k = best_of(questions) if samples is None else samples
            result = measure(agent, questions.test[:prompts], rewarder, sampling, k, seed)
    Console().print(evaluation_table(f"{model} on {questions.name}", result))
    if output is not None:
        output.write_text(json.dumps(result.as_dict(), indent=2) + "\n", encoding="utf-8")
