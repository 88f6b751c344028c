"""Options that more than one command has."""

from __future__ import annotations

from typing import Annotated

import typer

Jobs = Annotated[int | None, typer.Option(min=1, help="Runs at the same time. [default: one per core]")]
RunsWhere = Annotated[
    str, typer.Option(help="Where the runs are: on this machine's cores (local), or on ray.")
]
ClusterAddress = Annotated[
    str | None, typer.Option(help="host:port of a running Ray cluster. [default: one on this machine]")
]
