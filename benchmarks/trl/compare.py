"""The whole comparison: parity first, then alternating steps of every side in one process, then memory."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.command import progress
from benchmarks.flops import gemm_flops_per_second
from benchmarks.memory import Memory
from benchmarks.our_step import ENGINES, OurSide
from benchmarks.timing import Spread, StepTiming
from benchmarks.trl.parity import Check, check_parity
from benchmarks.trl.result import Comparison, Side
from benchmarks.trl.side_process import measure_memory
from benchmarks.trl.trl_step import run_trl
from benchmarks.workload import Workload


def compare_with_trl(work: Workload, repeats: int) -> Comparison:
    """Measure `repeats` rounds of alternating steps after one round of warming up."""
    torch.set_num_threads(1)
    parity: list[Check] = []
    for engine in ENGINES:
        progress(f"parity of the {engine} engine")
        parity += check_parity(work, engine)
    timings, gemm = _alternate(work, repeats)
    memory: dict[str, Memory] = {}
    for name in timings:
        progress(f"memory of {name}")
        memory[name] = measure_memory(work, name)
    return Comparison(
        workload=work,
        parameters=sum(parameter.numel() for parameter in work.make_model().parameters()),
        repeats=repeats,
        environment=environment(),
        gemm_gflops=Spread.of([speed / 1e9 for speed in gemm]),
        sides=[make_side(name, timings[name], timings["trl"], gemm, memory[name]) for name in timings],
        parity=parity,
    )


def _alternate(work: Workload, repeats: int) -> tuple[dict[str, list[StepTiming]], list[float]]:
    """Timings by side and the speed of matrix products, one of each per round.

    Every step starts from the same weights: otherwise training would change how long the responses get.
    """
    ours = {engine: OurSide(work, engine) for engine in ENGINES}
    replayed = ours["generic"].sample(work.seed) if work.replay else None
    trl_model = work.make_model()
    initial = {name: tensor.clone() for name, tensor in trl_model.state_dict().items()}
    timings: dict[str, list[StepTiming]] = {engine: [] for engine in ENGINES}
    gemm: list[float] = []

    def our_turn() -> None:
        progress(f"round {len(gemm)} of {repeats}")
        for engine, side in ours.items():
            timings[engine].append(side.step(len(gemm), replayed))
        for model in (trl_model, *(side.model for side in ours.values())):
            model.load_state_dict(initial)
        gemm.append(gemm_flops_per_second())

    theirs = run_trl(work, trl_model, repeats + 1, replayed=replayed, after_step=our_turn)
    every = {"trl": theirs.timings} | timings
    return {name: measured[1:] for name, measured in every.items()}, gemm[1:]


def make_side(
    name: str,
    steps: Sequence[StepTiming],
    trl: Sequence[StepTiming],
    gemm: Sequence[float],
    memory: Memory,
    dtype: str = "float32",
) -> Side:
    """A side's steps beside those of TRL and the speeds of matrix products in the same rounds."""
    return Side(
        name=name,
        generate=Spread.of([step.generate for step in steps]),
        update=Spread.of([step.update for step in steps]),
        other=Spread.of([step.other for step in steps]),
        total=Spread.of([step.total for step in steps]),
        tokens_per_second=Spread.of([step.tokens / step.total for step in steps]),
        speedup=Spread.of([theirs.total / step.total for theirs, step in zip(trl, steps, strict=True)]),
        gemm_share=Spread.of(
            [step.flops / step.total / speed for step, speed in zip(steps, gemm, strict=True)]
        ),
        memory=memory,
        dtype=dtype,
    )


def environment() -> dict[str, str]:
    """Processor and versions."""
    packages = ("hacrl", "trl", "transformers", "torch")
    return {"cpu": _cpu(), "python": platform.python_version()} | {name: version(name) for name in packages}


def _cpu() -> str:
    """The processor's name, from Linux if possible."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
