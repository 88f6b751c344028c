"""`hacrl demo`: a recipe's agents trained together, and under other methods for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hacrl.cli.common import say, show, user_errors, writable_directory

if TYPE_CHECKING:
    from rich.table import Table

OTHERS = {"alone": "gspo", "alone_x2": "gspo_x2", "hacpo": "hacpo"}
"""Run directory -> method: what the recipe's own method is compared with."""
TOGETHER = "together"
RECIPE = Path(__file__).with_suffix(".yaml")
"""Part of the package: the demo needs no clone."""


def demo(
    recipe: Annotated[
        Path, typer.Argument(help="A recipe whose method shares.", show_default="two toy models")
    ] = RECIPE,
    out: Annotated[Path, typer.Option(callback=writable_directory, help="Directory for the runs.")] = Path(
        "runs/demo"
    ),
    steps: Annotated[
        int | None, typer.Option(min=1, show_default="the recipe's", help="Fewer, for a look.")
    ] = None,
) -> None:
    """Train a recipe's agents together; for comparison alone, alone with twice the samples, with HACPO."""
    from hacrl.recipe import load_recipe

    with user_errors():
        changed = [f"steps={steps}"] if steps else []
        together = load_recipe(recipe, changed)
        recipes = {
            name: load_recipe(recipe, [*changed, f"method={method}"])
            for name, method in OTHERS.items()
            if method != together.method.name
        }

        from hacrl.analysis.report import write_report
        from hacrl.training.trainer import train

        out = _unused(out)
        summaries = {}
        for name, chosen in {**recipes, TOGETHER: together}.items():
            say((name, "bold"), f": the same agents with {chosen.method.name}")
            summaries[name] = train(chosen, out / name)
        report = write_report(out / TOGETHER)  # it finds the run of the agents alone next to this one
    show(comparison(summaries))
    say(f"One seed, {summaries[TOGETHER]['steps']} steps. Run directories: {out}")
    say(f"Report: {report}")


def comparison(summaries: Mapping[str, Mapping[str, Any]]) -> Table:
    """Each agent before and after every run: sampled and greedy accuracy, also by kind of prompt."""
    from hacrl.analysis.tables import make_table

    first = summaries[TOGETHER]
    runs = [first["method"] if name == TOGETHER else name for name in summaries]
    table = make_table("Accuracy on test problems", ("agent", "measure"), ("before", *runs))
    for agent, found in first["agents"].items():
        for task in found["after"]:
            evaluations = [
                found["before"][task],
                *(summary["agents"][agent]["after"][task] for summary in summaries.values()),
            ]
            for label in _measures(evaluations[0]):
                table.add_row(agent, label, *(f"{_measures(each)[label]:.3f}" for each in evaluations))
        table.add_section()
    widest = max(_half_widths(summaries))
    table.set_caption(f"95% intervals over the test problems: at most ±{widest:.3f}, by kind more")
    return table


def _measures(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """What the table shows of one evaluation."""
    from hacrl.training.evaluation import measure_name

    shares = {measure_name(m, evaluation["samples"]): evaluation[m] for m in ("mean_at_k", "greedy")}
    shares |= {f"greedy, {kind}": share for kind, share in evaluation["greedy_by_kind"].items()}
    return {label: share["mean"] for label, share in shares.items() if share is not None}


def _half_widths(summaries: Mapping[str, Mapping[str, Any]]) -> list[float]:
    shares = [
        share
        for summary in summaries.values()
        for agent in summary["agents"].values()
        for evaluation in agent["after"].values()
        for share in (evaluation["greedy"], evaluation["mean_at_k"])
        if share is not None
    ]
    return [(share["high"] - share["low"]) / 2 for share in shares]


def _unused(directory: Path) -> Path:
    """The directory itself, or the first of directory-2, directory-3, ... that does not exist."""
    candidates = (directory.with_name(f"{directory.name}-{number}") for number in range(2, 10_000))
    return directory if not directory.exists() else next(path for path in candidates if not path.exists())
