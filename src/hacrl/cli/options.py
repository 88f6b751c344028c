"""Options that more than one command has."""

from __future__ import annotations

from typing import Annotated

import typer

Jobs = Annotated[int | None, typer.Option(min=1, show_default="one per core", help="Runs at the same time.")]
RunsWhere = Annotated[
    str, typer.Option(help="Where the runs are: on this machine's cores (local), or on ray.")
]
ClusterAddress = Annotated[
    str | None, typer.Option(show_default="one on this machine", help="host:port of a running Ray cluster.")
]
