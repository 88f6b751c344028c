"""`hacrl doctor`: check a recipe without training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hacrl.cli.common import fail, finite, say, show, user_errors

if TYPE_CHECKING:
    from hacrl.analysis.doctor import Diagnosis
    from hacrl.analysis.tables import PlainTable


LONGEST_LINE = 1000
"""Characters shown of a line of a prompt."""


def doctor(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe, a YAML file.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change a key of the recipe: steps=20 method.name=gspo"),
    ] = None,
    gpu_gb: Annotated[
        float | None,
        typer.Option(
            min=1,
            callback=finite,
            show_default="this machine's, or 80",
            help="Memory of each GPU of the Ray cluster, in GB.",
        ),
    ] = None,
    gpu_check: Annotated[
        bool,
        typer.Option("--gpu-check", help="Instead: try everything on this machine's GPUs, or CPUs."),
    ] = False,
) -> None:
    """Check a recipe without training: what it resolves to, and what looks wrong.

    Exit code 0: it can run, perhaps with warnings. 2: it cannot. With --gpu-check, every backend, engine and
    runtime is tried on tiny models, for about five minutes; exit code 1 if something fails.
    """
    if gpu_check:
        _check_gpus()
        return
    if recipe is None:
        fail("Missing argument 'RECIPE' (see hacrl doctor --help)")
    with user_errors():
        from hacrl.recipe import RecipeError, load_recipe

        checked = load_recipe(recipe, overrides or ())

        from hacrl.analysis.doctor import examine

        found = examine(checked, round(gpu_gb * 1e9) if gpu_gb else None)
        if found.errors:
            raise RecipeError(str(recipe), found.errors)

    _report(found)


def _check_gpus() -> None:
    """Print every result as soon as it is there."""
    from hacrl.analysis.doctor.gpu_check import run_checks
    from hacrl.printable import printable

    styles = {"works": "green", "fails": "red", "not tried": "yellow"}
    failed = 0
    for result in run_checks():
        taken = f" ({result.seconds:.0f} s)" if result.seconds else ""
        failed += result.verdict == "fails"
        say(
            (f"{result.verdict:<9}", styles[result.verdict]),
            f" {result.title}: {printable(result.detail, LONGEST_LINE)}{taken}",
        )
    say("What has never been run on a GPU is listed in docs/gpus.md: please report what you saw.")
    if failed:
        raise typer.Exit(1)


def _report(found: Diagnosis) -> None:
    from hacrl.analysis.doctor import warnings_for
    from hacrl.analysis.doctor.backends import backend_lines
    from hacrl.printable import printable

    for table in (_agents_table(found), _updates_table(found), _memory_table(found), _turns_table(found)):
        if table is not None:
            show(table)
    for line in _precision_lines(found) + backend_lines(found) + found.peers + _task_lines(found):
        say(line)
    prompts = {agent.name: agent.first_prompt for agent in found.agents} | found.sent
    for name, prompt in prompts.items():
        if prompt is not None:
            length = "its server counts the tokens" if prompt.tokens is None else f"{prompt.tokens} tokens"
            say(f"First prompt of {name}, {length}:")
            for line in prompt.text.split("\n"):
                say(f"  {printable(line, LONGEST_LINE)}")
    for note in found.notes:
        say(f"note {note.key}: {note.message}")
    warnings = warnings_for(found)
    for warning in warnings:
        say(("warning", "yellow"), f" {warning.key}: {warning.message}")
    verdict = "can run where the things noted above are available" if found.notes else "can run"
    say((f"This recipe {verdict}.", "green"), " See the warnings." if warnings else "")


def _table(title: str, *headings: str) -> PlainTable:
    from hacrl.analysis.tables import PlainTable

    table = PlainTable(title)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left", overflow="fold")
    return table


def _agents_table(found: Diagnosis) -> PlainTable:
    from hacrl.analysis.doctor.memory import rounded

    table = _table("Agents", "agent", "model", "parameters", "trained", "device", "dtype", "learning rate")
    for agent in found.agents:
        parameters = trained = "not known yet"
        if agent.facts:
            parameters, trained = rounded(agent.facts.parameters), rounded(agent.facts.trained)
        device = f"{agent.gpus * agent.ranks:g} GPUs" if agent.gpus else agent.device
        rate = "by size" if agent.learning_rate is None else f"{agent.learning_rate:g}"
        rate = rate if agent.trains else "frozen"
        table.add_row(agent.name, agent.model, parameters, trained, device, agent.precision.dtype, rate)
    return table


def _precision_lines(found: Diagnosis) -> list[str]:
    """The measurements behind `dtype: auto`."""
    return [
        f"Agent {agent.name} computes in {agent.precision.dtype}: matrix products in bfloat16 are "
        f"{agent.precision.speedup:.2g} times as fast as in float32 on this machine"
        for agent in found.agents
        if agent.precision.speedup is not None
    ]


def _updates_table(found: Diagnosis) -> PlainTable:
    own = list(dict.fromkeys(heading for agent in found.agents for heading in agent.columns))
    headings = ("agent", "draws", "tokens at most", "receives from", "trains on", "updates", *own)
    table = _table("Every step", *headings)
    for agent in found.agents:
        table.add_row(
            agent.name,
            f"{agent.rollouts:,}",
            f"{agent.tokens:,}",
            (" ".join(agent.peers) or "nobody") if agent.trains else "-",
            f"{agent.learned:,}",
            str(agent.updates),
            *(agent.columns.get(heading, "-") for heading in own),
        )
    table.set_caption("draws, trains on: responses")
    return table


def _memory_table(found: Diagnosis) -> PlainTable:
    from hacrl.analysis.doctor.advice import device_memory
    from hacrl.analysis.doctor.memory import Memory, in_units

    known = [agent.memory for agent in found.agents if agent.memory]
    parts = [field.name for field in dataclasses.fields(Memory)]
    parts = [part for part in parts if any(getattr(memory, part) for memory in known)]
    table = _table("Memory of each device, about", "agent", *parts)
    for agent in found.agents:
        if agent.memory:
            table.add_row(agent.name, *(in_units(getattr(agent.memory, part)) for part in parts))
        else:
            table.add_row(agent.name, *["?"] * len(parts))
    totals = [
        f"{device.name}: {in_units(device.needed)} of {in_units(device.available)}"
        for device in device_memory(found)
    ]
    table.set_caption(f"together on {', '.join(totals)}; formulas in docs/recipe.md")
    return table


def _turns_table(found: Diagnosis) -> PlainTable | None:
    """What the agents would need if they took turns on all GPUs with vLLM; None without a cluster's GPUs."""
    from hacrl.analysis.doctor.examination import gpus_needed
    from hacrl.analysis.doctor.memory import in_units
    from hacrl.analysis.doctor.turns import turns

    known = turns(found)
    if not known:
        return None
    headings = ("asleep", "handing over", "awake", "per row", "rows", "GPUs")
    gpus = round(gpus_needed(found))
    title = f"If all agents took turns on these {gpus} GPUs, each with vLLM: memory of each GPU, about"
    table = _table(title, "agent", *headings, "offloaded")
    for turn in known:
        sizes = (turn.training, turn.handing_over, turn.engine, turn.row)
        counts = (str(turn.rows), str(turn.tensor_parallel))
        table.add_row(turn.name, *map(in_units, sizes), *counts, in_units(turn.offloaded))
    most, in_cpu = max(turn.needed for turn in known), sum(turn.offloaded for turn in known)
    table.set_caption(
        f"at most {in_units(most)} of {in_units(found.gpu_memory)} on a GPU, {in_units(in_cpu)} of CPU memory"
        ". runtime.share_devices with engine: vllm does it, but has not been run on a GPU yet; what the "
        "columns mean and the formulas are in docs/paper.md"
    )
    return table


def _task_lines(found: Diagnosis) -> list[str]:
    recipe, task = found.recipe, found.task
    drawn = sum(agent.rollouts for agent in found.agents) * recipe.steps
    steps = f"Method {recipe.method.name}, {recipe.steps} steps of {recipe.prompts_each} prompts: "
    if task is None:
        return [f"{steps}{drawn:,} responses drawn in all"]
    functions = ", ".join(function.path for function in recipe.reward.functions)
    passes = recipe.steps * recipe.prompts_each / len(task.train)
    return [
        f"Task {task.name}: {len(task.train):,} training and {len(task.test):,} test prompts, "
        f"scored by {functions or recipe.reward.verifier or task.verifier}",
        f"{steps}{passes:.2g} passes over the task, {drawn:,} responses drawn in all",
    ]
