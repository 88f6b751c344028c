"""One side in a process of its own, which runs nothing else: a step whenever one is asked for."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass

from benchmarks.flops import gemm_flops_per_second
from benchmarks.memory import Memory, peak_megabytes
from benchmarks.real_models import RealModel
from benchmarks.timing import StepTiming
from benchmarks.worker import NoMoreQuestions, Worker, answer, answer_all, next_question
from benchmarks.workload import Workload, workload_from_json

ENDLESS = 10_000
"""More steps than anybody asks for."""


@dataclass(frozen=True)
class MeasuredStep:
    """One step, and what a large matrix product of the side's dtype reached right after it."""

    timing: StepTiming
    gemm_flops: float


class SideProcess(Worker):
    """`trl`, or one of our engines; runs a step on every call of `step`."""

    def __init__(self, work: Workload, side: str) -> None:
        super().__init__(side, __name__, json.dumps(asdict(work)), side)

    def step(self) -> MeasuredStep:
        """The next step."""
        data = self.ask("step")
        return MeasuredStep(StepTiming(**data["timing"]), data["gemm_flops"])

    def finish(self) -> tuple[str, Memory]:
        """No more steps: the engine that ran them, and the memory they took."""
        data = self.end()
        return data["engine"], Memory(**data["memory"])


def measure_memory(work: Workload, side: str) -> Memory:
    """Of two steps: from the second on, optimiser state and allocator are as in every later one."""
    with SideProcess(work, side) as process:
        process.step()
        process.step()
        return process.finish()[1]


def main(work: Workload, side: str) -> None:
    """Run a step for every question; at the end, say what they took."""
    import torch

    torch.set_num_threads(1)
    engine, imported = _run_trl(work) if side == "trl" else _run_ours(work, side)
    answer({"engine": engine, "memory": asdict(Memory(peak_megabytes(), imported))})


def _measured(work: Workload, timing: StepTiming) -> dict[str, object]:
    dtype = work.size.dtype if isinstance(work.size, RealModel) else "float32"
    return asdict(MeasuredStep(timing, gemm_flops_per_second(dtype)))


def _run_trl(work: Workload) -> tuple[str, float]:
    """TRL runs its own loop: between two of its steps it waits for the next question."""
    import trl.trainer.grpo_trainer  # noqa: F401 (its memory counts as imports)

    from benchmarks.trl.trl_step import TrlRun, run_trl

    imported, run = peak_megabytes(), TrlRun()

    def after_step() -> None:
        answer(_measured(work, run.timings[-1]))
        next_question()

    with suppress(NoMoreQuestions):
        next_question()
        run_trl(work, work.make_model("float32"), ENDLESS, after_step=after_step, run=run)
    return "trl", imported


def _run_ours(work: Workload, engine: str) -> tuple[str, float]:
    from benchmarks.our_step import OurSide

    imported = peak_megabytes()
    side = OurSide(work, engine)
    seeds = iter(range(ENDLESS))
    answer_all(lambda _: _measured(work, side.step(next(seeds))))
    return side.engine, imported


if __name__ == "__main__":
    main(workload_from_json(sys.argv[1]), sys.argv[2])
