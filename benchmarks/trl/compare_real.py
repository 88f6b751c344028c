"""A real model: every side in a process of its own, at its best dtype, alternating step by step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.command import progress
from benchmarks.our_step import BEST
from benchmarks.real_models import RealModel
from benchmarks.timing import Spread
from benchmarks.trl.compare import environment, make_side
from benchmarks.trl.result import Comparison
from benchmarks.trl.side_process import MeasuredStep, SideProcess
from benchmarks.workload import Workload


def compare_real(work: Workload, repeats: int, trl_dtypes: Sequence[str]) -> Comparison:
    """`repeats` rounds of one step of each side, after one of each to warm up.

    Of TRL's dtypes the one whose first step is the fastest is measured. The sides share no memory, so
    neither changes the other's peak; both have to fit into the machine's together.
    """
    model = work.size
    assert isinstance(model, RealModel)
    with ExitStack() as processes:
        trl, trl_dtype = _fastest_trl(work, trl_dtypes, processes)
        ours = processes.enter_context(SideProcess(work, BEST))
        progress(f"hacrl, {model.dtype}: the first step")
        ours.step()
        theirs_measured: list[MeasuredStep] = []
        ours_measured: list[MeasuredStep] = []
        for number in range(1, repeats + 1):
            progress(f"round {number} of {repeats}")
            theirs_measured.append(trl.step())
            ours_measured.append(ours.step())
        (_, trl_memory), (engine, our_memory) = trl.finish(), ours.finish()
    trl_steps = [step.timing for step in theirs_measured]
    limits = [step.gemm_flops for step in ours_measured]
    sides = [
        make_side(
            "trl", trl_steps, trl_steps, [s.gemm_flops for s in theirs_measured], trl_memory, trl_dtype
        ),
        make_side(
            engine,
            [step.timing for step in ours_measured],
            trl_steps,
            limits,
            our_memory,
            model.dtype,
        ),
    ]
    return Comparison(
        workload=work,
        parameters=model.facts.parameters,
        repeats=repeats,
        environment=environment(),
        gemm_gflops=Spread.of([limit / 1e9 for limit in limits]),
        sides=sides,
        parity=[],
    )


def _fastest_trl(work: Workload, dtypes: Sequence[str], processes: ExitStack) -> tuple[SideProcess, str]:
    """A process that has run one step, and its dtype; those of the other dtypes have ended."""
    best: tuple[float, SideProcess, str] | None = None
    for dtype in dtypes:
        progress(f"TRL, {dtype}: the first step")
        assert isinstance(work.size, RealModel)
        trl = SideProcess(replace(work, size=replace(work.size, dtype=dtype)), "trl")
        processes.enter_context(trl)
        seconds = trl.step().timing.total
        if best is None or seconds < best[0]:
            slower, best = best, (seconds, trl, dtype)
        else:
            slower = (seconds, trl, dtype)
        if slower is not None:
            slower[1].stop()
    assert best is not None
    return best[1], best[2]
