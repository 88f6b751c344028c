"""`hacrl bench`: each measurement is one flag and one module of `hacrl.bench`."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hacrl.cli.common import user_errors

if TYPE_CHECKING:
    from hacrl.bench.peer.workload import Workload


def bench(
    peer: Annotated[str, typer.Option(help="One step beside another library's: trl.")] = "",
    size: Annotated[str, typer.Option(help="Model of --peer: S (0.8M) or M (5.75M parameters).")] = "S",
    arch: Annotated[str, typer.Option(help="Model of --peer: qwen3 or llama.")] = "qwen3",
    eos_hazard: Annotated[
        float, typer.Option(help="Probability that an answer ends at a token; 0: all have full length.")
    ] = 0.07,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 32,
    replay: Annotated[bool, typer.Option("--replay", help="Both sides train on the same answers.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Measured rounds of --peer, --runtime, --waiting.")] = 5,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="How cost grows; two agents on two cores.")
    ] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Where a training step's time goes; what saving costs.")
    ] = False,
    verifiers: Annotated[bool, typer.Option("--verifiers", help="Answers checked per second.")] = False,
    runtime: Annotated[
        bool, typer.Option("--runtime", help="Steps per hour in one process and on a local Ray.")
    ] = False,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Unequal agents on a local Ray, with and without waiting.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures to this file (not --verifiers).")
    ] = None,
) -> None:
    """Measure speed on this machine. Fails only if both sides of --peer do not compute the same."""
    from hacrl.bench.tables import print_tables

    if [bool(peer), scaling, steps, verifiers, runtime, waiting].count(True) != 1:
        choices = "--peer trl, --scaling, --steps, --runtime, --waiting or --verifiers"
        typer.echo(f"error: choose one thing to measure: {choices}", err=True)
        raise typer.Exit(2)
    with user_errors():
        if verifiers:
            from hacrl.bench.verifiers import run

            print_tables([run()], markdown=markdown)
        elif scaling:
            from hacrl.bench.scaling import measure_scaling, scaling_tables

            curves = measure_scaling(_progress)
            print_tables(scaling_tables(curves), markdown=markdown)
            _write(json_file, curves)
        elif steps:
            from hacrl.bench.steps import measure_steps, step_tables

            costs = measure_steps(_progress)
            print_tables(step_tables(costs), markdown=markdown)
            _write(json_file, costs)
        elif runtime:
            from hacrl.bench.runtimes import measure_runtimes, runtime_tables

            paces = measure_runtimes(_progress, repeats)
            print_tables(runtime_tables(paces), markdown=markdown)
            _write(json_file, paces)
        elif waiting:
            from hacrl.bench.waiting import measure_waiting, waiting_tables

            found = measure_waiting(_progress, repeats)
            print_tables(waiting_tables(found), markdown=markdown)
            _write(json_file, found)
        else:
            _check_choice("--peer", peer, ("trl",))
            work = _workload(size, arch, eos_hazard, max_new, replay)
            _compare(work, repeats, markdown, json_file)


def _compare(work: Workload, repeats: int, markdown: bool, json_file: Path | None) -> None:
    from hacrl.bench.peer.compare import compare_with_trl
    from hacrl.bench.peer.render import comparison_tables
    from hacrl.bench.tables import print_tables

    found = compare_with_trl(work, repeats, _progress)
    print_tables(comparison_tables(found), markdown=markdown)
    _write(json_file, found)
    if not found.agrees:
        typer.echo("error: the two sides do not compute the same; see the parity table", err=True)
        raise typer.Exit(1)


def _workload(size: str, arch: str, eos_hazard: float, max_new: int, replay: bool) -> Workload:
    from hacrl.bench.peer.workload import ARCHITECTURES, SIZES, Workload

    _check_choice("--size", size, SIZES)
    _check_choice("--arch", arch, ARCHITECTURES)
    if not 0 <= eos_hazard < 1:
        raise ValueError(f"--eos-hazard {eos_hazard}: a probability below 1 is needed")
    return Workload(SIZES[size], arch, eos_hazard, max_new, replay)


def _check_choice(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ValueError(f"{option} {value!r}: choose one of {', '.join(choices)}")


def _write(path: Path | None, figures: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(asdict(figures), indent=2) + "\n")


def _progress(doing: str) -> None:
    typer.echo(f"... {doing}", err=True)
