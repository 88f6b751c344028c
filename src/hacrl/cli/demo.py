"""`hacrl demo`: a recipe with every agent alone and with all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

ALONE = "gspo"


def demo(
    recipe: Annotated[Path, typer.Argument(help="A recipe whose method shares.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Directory for the two runs.")] = Path("runs/quickstart"),
) -> None:
    """Train a recipe's agents together, then the same agents alone on as many samples, and compare."""
    from hacrl.cli.errors import user_errors
    from hacrl.config import load_recipe

    with user_errors():
        together_recipe = load_recipe(recipe)
        alone_recipe = load_recipe(recipe, [f"method={ALONE}"])

        from rich.console import Console

        from hacrl.report import write_report
        from hacrl.training.trainer import train

        console = Console()
        out = _unused(out)
        console.print(
            f"[bold]Together[/bold] ({together_recipe.method.name}): all learn from every verified answer"
        )
        together = train(together_recipe, out / "together")
        console.print(f"[bold]Alone[/bold] ({ALONE}): the same agents, prompts and number of samples")
        alone = train(alone_recipe, out / "alone")
        report = write_report(out / "together", baseline=out / "alone")
    console.print(comparison(alone, together))
    console.print(f"One seed, {together['steps']} steps; in brackets 95% intervals over the test problems.")
    console.print(f"Run directories: {out / 'together'} and {out / 'alone'}", highlight=False)
    console.print(f"Report: {report}", highlight=False, soft_wrap=True)


def comparison(alone: Mapping[str, Any], together: Mapping[str, Any]) -> Table:
    """Each agent before, trained alone and trained together."""
    from rich.table import Table

    from hacrl.cli.tables import interval
    from hacrl.evaluate import MEASURES, measure_name

    table = Table(title="Accuracy on test problems", title_justify="left")
    for heading in (
        "agent",
        "measure",
        "before",
        f"alone ({alone['method']})",
        f"together ({together['method']})",
    ):
        table.add_column(heading, justify="left" if heading in ("agent", "measure") else "right")
    for name, agent in together["agents"].items():
        for task, after in agent["after"].items():
            for measure in MEASURES:
                if after[measure] is not None:
                    table.add_row(
                        name,
                        measure_name(measure, after["samples"]),
                        interval(agent["before"][task][measure]),
                        interval(alone["agents"][name]["after"][task][measure]),
                        interval(after[measure]),
                    )
    return table


def _unused(directory: Path) -> Path:
    """The directory itself, or the first of directory-2, directory-3, ... that does not exist."""
    candidates = (directory.with_name(f"{directory.name}-{number}") for number in range(2, 10_000))
    return directory if not directory.exists() else next(path for path in candidates if not path.exists())
