"""`python -m benchmarks.trl`: hacrl beside TRL."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from benchmarks.command import JsonFile, Markdown, Repeats, command, show
from benchmarks.trl.compare import compare_with_trl
from benchmarks.trl.result import comparison_tables
from benchmarks.workload import SIZES, Workload
from hacrl.analysis.simulate.synthetic import ARCHITECTURES


def trl(
    size: Annotated[str, typer.Option(help="The model: S (0.8M) or M (5.75M parameters).")] = "S",
    arch: Annotated[str, typer.Option(help="Its architecture: qwen3 or llama.")] = "qwen3",
    eos_hazard: Annotated[
        float, typer.Option(help="Probability that a response ends at a token; 0: all have full length.")
    ] = 0.07,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 32,
    replay: Annotated[
        bool, typer.Option("--replay", help="Both sides train on the same recorded responses.")
    ] = False,
    repeats: Repeats = 5,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Time one training step beside the same step of TRL on this machine.

    Both sides alternate in one process, on one thread, with copies of one random model. Exit code 1 if they
    do not compute the same log-probs, loss, gradient and new weights.

    The tables are explained in docs/performance.md.
    """
    _check_choice("--size", size, SIZES)
    _check_choice("--arch", arch, ARCHITECTURES)
    if not 0 <= eos_hazard < 1:
        raise ValueError(f"--eos-hazard {eos_hazard}: a probability below 1 is needed")
    found = compare_with_trl(Workload(SIZES[size], arch, eos_hazard, max_new, replay), repeats)
    show(comparison_tables(found), found, markdown, json_file)
    if not found.agrees:
        typer.echo("error: the two sides do not compute the same; see the parity table", err=True)
        raise typer.Exit(1)


def _check_choice(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ValueError(f"{option} {value!r}: choose one of {', '.join(choices)}")


app = command(trl)

if __name__ == "__main__":
    app()
