"""`hacrl push`: upload a trained agent to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hacrl.cli.common import user_errors


def push(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.", show_default=False)],
    agent: Annotated[str, typer.Option(help="The agent to upload.", show_default=False)],
    repo: Annotated[str, typer.Option(help="Id of its repository: OWNER/NAME.", show_default=False)],
    public: Annotated[
        bool, typer.Option("--public", help="A new repository is public, not private.")
    ] = False,
    base_model: Annotated[
        str | None,
        typer.Option(help="Hub id of the model it started from, if the recipe names a directory."),
    ] = None,
) -> None:
    """Upload a trained agent with its model card to the Hugging Face hub.

    The token is that of `hf auth login` or of the variable HF_TOKEN. A new repository is private.
    """
    with user_errors():
        from hacrl.runs.publish import publish_agent

        address = publish_agent(run, agent, repo, public=public, base_model=base_model)
    typer.echo(f"{agent} is at {address}")
