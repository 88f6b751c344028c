"""`hacrl trajectories`: list and filter the trajectories a run's agents shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hacrl.cli.common import say, show, user_errors

if TYPE_CHECKING:
    from hacrl.types import Trajectory


def trajectories(
    run: Annotated[Path, typer.Argument(help="Directory of the run.")],
    agent: Annotated[list[str] | None, typer.Option(help="Only of this agent (may be repeated).")] = None,
    prompt: Annotated[list[str] | None, typer.Option(help="Only for this prompt (may be repeated).")] = None,
    correct: Annotated[
        bool | None,
        typer.Option(
            "--correct/--wrong", help="Only rewards above 0, or only the others; unscored is neither."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="20 in the table, all as JSON", help="Trajectories to show, at most."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List a run's shared trajectories, filtered by agent, prompt and success."""
    from hacrl.runs.reader import RunReader
    from hacrl.runs.trajectories import to_json

    def wanted(found: Trajectory) -> bool:
        is_correct = None if found.reward is None else found.reward > 0
        return (
            (not agent or found.source in agent)
            and (not prompt or found.prompt_id in prompt)
            and (correct is None or is_correct is correct)
        )

    agents, prompts, chosen = set(), set(), []
    with user_errors():
        for found in RunReader(run).trajectories():
            agents.add(found.source)
            prompts.add(found.prompt_id)
            if wanted(found):
                chosen.append(found)
        _check_known("--agent", agent, agents)
        _check_known("--prompt", prompt, prompts)
    if as_json:
        for found in chosen[:limit]:
            typer.echo(to_json(found))
    else:
        _print_table(chosen, limit or 20)


def _check_known(option: str, asked: list[str] | None, known: set[str]) -> None:
    for name in asked or []:
        if name not in known:
            shown = ", ".join(sorted(known)[:10]) + (", ..." if len(known) > 10 else "")
            raise ValueError(f"{option} {name}: not in this run, which has {shown or 'no trajectories'}")


def _print_table(chosen: list[Trajectory], limit: int) -> None:
    from hacrl.analysis.tables import PlainTable

    table = PlainTable()
    for column in ("step", "prompt", "agent", "sample", "reward", "mean logp", "finish"):
        table.add_column(column, no_wrap=True)
    table.add_column("response", no_wrap=True, ratio=1)
    for found in chosen[:limit]:
        reward = "-" if found.reward is None else f"{found.reward:g}"
        mean_logp = f"{found.logp_sum / found.logp_count:.3f}" if found.logp_count else "-"
        cells = (str(found.step), found.prompt_id, found.source, str(found.sample), reward, mean_logp)
        table.add_row(*cells, found.finish_reason, found.text)
    show(table)
    say(f"{min(limit, len(chosen))} of {len(chosen)} trajectories")
