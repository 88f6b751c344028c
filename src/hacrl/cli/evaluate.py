"""`hacrl eval`: one agent alone on a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hacrl.cli.common import evaluation_table, say, show, user_errors, writable_file

if TYPE_CHECKING:
    from hacrl.training.evaluation import Evaluation, ScoredResponse


def evaluate(
    model: Annotated[str, typer.Argument(help="A saved agent's directory, a hub id or toy:NAME.")],
    task: Annotated[str, typer.Option(help="A built-in task, a data file, a directory or a hub id.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the task: test=300. Repeatable."),
    ] = None,
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
    stop: Annotated[
        list[str] | None, typer.Option(help=r"A string that ends a response; \n is a line break. Repeatable.")
    ] = None,
    system_prompt: Annotated[str | None, typer.Option(help="System message of the chat.")] = None,
    prompt_template: Annotated[
        str | None, typer.Option(help=r"Text around the prompt, with {prompt} in it; \n is a line break.")
    ] = None,
    template_variable: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="For the chat template: enable_thinking=false. Repeatable."),
    ] = None,
    chat: Annotated[bool, typer.Option(help="Write prompts with the chat template, if there is one.")] = True,
    verifier: Annotated[str | None, typer.Option(show_default="the task's own", help="Verifier.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:0 or auto.")] = "auto",
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16 or auto: the faster one for large models.")
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    printed: Annotated[int, typer.Option("--show", min=0, help="Greedy responses to print.")] = 3,
    responses: Annotated[
        Path | None, typer.Option(callback=writable_file, help="Write all responses here as JSONL.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--json", callback=writable_file, help="Write the result here as JSON.")
    ] = None,
) -> None:
    """Measure one agent alone: greedy accuracy, mean@k and pass@k, with 95% intervals."""
    from hacrl.cli.responses import as_jsonl, explanation, shown
    from hacrl.recipe import parse_recipe
    from hacrl.rewards.verifiers import VERIFIERS, Verifier
    from hacrl.runs.files import write_atomic, write_json

    agent = {
        "name": "agent",
        "model": model,
        "device": device,
        "dtype": dtype,
        "chat": chat,
        "system_prompt": system_prompt,
        "prompt_template": _with_line_breaks(prompt_template) if prompt_template else None,
    }
    stops = [_with_line_breaks(text) for text in stop or ()]
    values = {
        "agents": [agent],
        "task": {"name": task},
        "sampling": {"max_new_tokens": max_new_tokens, "temperature": temperature, "stop": stops},
        "reward": {"verifier": verifier},
        "seed": seed,
    }
    overrides = [f"task.{setting}" for setting in settings or ()]
    overrides += [f"agents.0.template_variables.{variable}" for variable in template_variable or ()]
    with user_errors():
        recipe = parse_recipe(values, overrides, where="hacrl eval")
        name, scorer, result, found = _measure(recipe, prompts, samples)
        compared = VERIFIERS.get(scorer, Verifier(scorer))  # a function of your own extracts nothing
        if output is not None:
            write_json(output, result.as_dict())
        if responses is not None:
            write_atomic(responses, as_jsonl(found, compared))
    for line in shown([each for each in found if each.greedy][:printed], compared):
        say(line)
    show(evaluation_table(f"{model} on {name}", result))
    for line in explanation(found, compared):
        say(line)


def _measure(
    recipe: Any, prompts: int, samples: int | None
) -> tuple[str, str, Evaluation, list[ScoredResponse]]:
    """The names of task and verifier, the agent's results and all its responses."""
    from hacrl.agents.blueprint import Blueprint
    from hacrl.training.evaluation import evaluate_with_responses
    from hacrl.training.team_setup import best_of, load_task, make_rewarder, refuse_missing_devices

    refuse_missing_devices(recipe)
    task = load_task(recipe.task)
    agent = Blueprint(recipe.agents[0], sampling=recipe.sampling).load()
    k = best_of(task) if samples is None else samples
    with make_rewarder(recipe, task) as rewarder:
        result, responses = evaluate_with_responses(
            agent, task.test[:prompts], rewarder, recipe.sampling, k, recipe.seed
        )
    return task.name, recipe.reward.verifier or task.verifier, result, responses


def _with_line_breaks(text: str) -> str:
    return text.replace(r"\n", "\n")
