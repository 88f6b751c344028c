"""`hacrl compare`: the same agents, prompts and seeds under several methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.common import ClusterAddress, Jobs, RunsWhere, comparison_errors, say, show, writable_directory


def compare(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Change a key of the recipe for all methods: steps=20"),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; LABEL=METHOD gives one another name.")
    ] = "hacpo,gspo,gspo_x2,naive",
    own: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD:KEY=VALUE", help="Change a key for one method alone."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, max=10_000, help="Runs of every method.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, max=2**62, help="The first of the seeds.")] = 0,
    reference: Annotated[
        list[str] | None,
        typer.Option(show_default="gspo and gspo_x2", help="Compare with this method (may be repeated)."),
    ] = None,
    out: Annotated[
        Path, typer.Option(callback=writable_directory, help="Directory of the comparison.")
    ] = Path("runs/comparison"),
    jobs: Jobs = None,
    runtime: RunsWhere = "local",
    address: ClusterAddress = None,
) -> None:
    """Train the same agents under several methods, and show which differences are more than chance.

    Repeat the command to continue a comparison that was stopped: finished runs are not repeated. The
    directory holds runs/, logs/, comparison.json, results.json and results.md.
    """
    with comparison_errors():
        from hacrl.analysis.compare.comparison import run_comparison
        from hacrl.analysis.compare.plan import make_plan
        from hacrl.analysis.compare.report import report
        from hacrl.analysis.compare.workers import WorkerPool

        pool = WorkerPool(runtime, jobs, address)
        plan = make_plan(
            recipe,
            overrides or (),
            [method.strip() for method in methods.split(",")],
            own or (),
            range(first_seed, first_seed + seeds),
            out,
        )
        results = run_comparison(plan, reference or (), pool)

    from rich.markdown import Markdown

    show(Markdown(report(results)))
    say(f"Written to {out / 'results.md'} and {out / 'results.json'}")
