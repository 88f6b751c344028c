"""`python -m benchmarks.trl`: hacrl beside TRL."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import JsonFile, Markdown, Repeats, command, show
from benchmarks.real_models import RealModel
from benchmarks.trl.compare import compare_with_trl
from benchmarks.trl.compare_real import compare_real
from benchmarks.trl.result import comparison_tables
from benchmarks.workload import NO_LEARNING, SIZES, Workload
from hacrl.agents.precision import DTYPES
from hacrl.analysis.simulate.synthetic import ARCHITECTURES


def trl(
    size: Annotated[str, typer.Option(help="The model: S (0.8M) or M (5.75M parameters).")] = "S",
    arch: Annotated[str, typer.Option(help="Its architecture: qwen3 or llama.")] = "qwen3",
    eos_hazard: Annotated[
        float, typer.Option(help="Probability that a response ends at a token; 0: all have full length.")
    ] = 0.07,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 32,
    model: Annotated[
        Path | None,
        typer.Option(help="Directory of a real model instead; each side takes its fastest dtype."),
    ] = None,
    trl_dtype: Annotated[
        str, typer.Option(help="With --model, TRL's: float32, bfloat16, or auto, which tries both.")
    ] = "auto",
    trl_rows: Annotated[
        int, typer.Option(help="With --model, responses of one of TRL's micro-batches: 8, 16, 32 or 64.")
    ] = 16,
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

    With `--model` they alternate in processes of their own, which have to fit into memory together.
    `python -m benchmarks.exactness` tells whether our side computes the right thing.

    The tables are explained in docs/performance.md.
    """
    _check_choice("--size", size, SIZES)
    _check_choice("--arch", arch, ARCHITECTURES)
    if not 0 <= eos_hazard < 1:
        raise ValueError(f"--eos-hazard {eos_hazard}: a probability below 1 is needed")
    _check_choice("--trl-dtype", trl_dtype, ("auto", *DTYPES))
    if model is None:
        found = compare_with_trl(Workload(SIZES[size], arch, eos_hazard, max_new, replay), repeats)
    else:
        if replay:
            raise ValueError("--replay and --model do not go together")
        _check_choice("--trl-rows", trl_rows, (8, 16, 32, 64))
        work = Workload(
            RealModel.at_its_best(model), max_new=max_new, learning_rate=NO_LEARNING, trl_rows=trl_rows
        )
        found = compare_real(work, repeats, list(DTYPES) if trl_dtype == "auto" else [trl_dtype])
    show(comparison_tables(found), found, markdown, json_file)
    if not found.agrees:
        typer.echo("error: the two sides do not compute the same; see the parity table", err=True)
        raise typer.Exit(1)


def _check_choice(option: str, value: object, choices: Collection[object]) -> None:
    if value not in choices:
        raise ValueError(f"{option} {value!r}: choose one of {', '.join(map(str, choices))}")


app = command(trl)

if __name__ == "__main__":
    app()
