"""One side in a process of its own, which runs nothing else: a step whenever one is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any

from benchmarks.flops import gemm_flops_per_second
from benchmarks.memory import Memory, peak_megabytes
from benchmarks.real_models import RealModel
from benchmarks.timing import StepTiming
from benchmarks.workload import Workload, workload_from_json

ROOT = Path(__file__).parents[2]
"""From here `benchmarks` can be imported."""
ANSWER = "answer: "
"""Begins the lines of standard output that are meant for the process that asked."""
ENDLESS = 10_000
"""More steps than anybody asks for."""


@dataclass(frozen=True)
class MeasuredStep:
    """One step, and what a large matrix product of the side's dtype reached right after it."""

    timing: StepTiming
    gemm_flops: float


@dataclass(frozen=True)
class Ending:
    """What a process has to say at its end."""

    memory: Memory
    engine: str
    """The side's name in the results."""


class SideProcess:
    """`trl`, or one of our engines; loads its model at once and runs a step on every call of `step`."""

    def __init__(self, work: Workload, side: str) -> None:
        self._side = side
        self._errors = TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-m", __name__, json.dumps(asdict(work)), side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cwd=ROOT,
        )

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def step(self) -> MeasuredStep:
        """The next step."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("step\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: what it wrote says why
        data = self._answer()
        return MeasuredStep(StepTiming(**data["timing"]), data["gemm_flops"])

    def end(self) -> Ending:
        """No more steps: what they took."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        data = self._answer()
        return Ending(Memory(**data["memory"]), data["engine"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                data: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return data
        self._errors.seek(0)
        raise RuntimeError(f"the process of {self._side} failed:\n{self._errors.read()[-2000:]}")


def measure_memory(work: Workload, side: str) -> Memory:
    """Of two steps: from the second on, optimiser state and allocator are as in every later one."""
    with SideProcess(work, side) as process:
        process.step()
        process.step()
        return process.end().memory


class _NoMoreSteps(Exception):
    """The other process has closed its end."""


def _wait_for_command() -> None:
    if not sys.stdin.readline():
        raise _NoMoreSteps


def _tell(answer: MeasuredStep | Ending) -> None:
    print(f"{ANSWER}{json.dumps(asdict(answer))}", flush=True)


def main(work: Workload, side: str) -> None:
    """Run a step for every line of standard input; at its end, say what they took."""
    import torch

    torch.set_num_threads(1)
    dtype = work.size.dtype if isinstance(work.size, RealModel) else "float32"

    def tell_step(timing: StepTiming) -> None:
        _tell(MeasuredStep(timing, gemm_flops_per_second(dtype)))

    imported, engine = (_run_trl if side == "trl" else _run_ours)(work, side, tell_step)
    _tell(Ending(Memory(peak_megabytes(), imported), engine))


def _run_trl(work: Workload, side: str, tell: Callable[[StepTiming], None]) -> tuple[float, str]:
    import trl.trainer.grpo_trainer  # noqa: F401 (its memory counts as imports)

    from benchmarks.trl.trl_step import TrlRun, run_trl

    imported = peak_megabytes()
    run = TrlRun()

    def after_step() -> None:
        tell(run.timings[-1])
        _wait_for_command()

    try:
        _wait_for_command()
        run_trl(work, work.make_model("float32"), ENDLESS, after_step=after_step, run=run)
    except _NoMoreSteps:
        pass
    return imported, side


def _run_ours(work: Workload, side: str, tell: Callable[[StepTiming], None]) -> tuple[float, str]:
    from benchmarks.our_step import OurSide

    imported = peak_megabytes()
    ours = OurSide(work, side)
    try:
        for step in range(ENDLESS):
            _wait_for_command()
            tell(ours.step(step))
    except _NoMoreSteps:
        pass
    return imported, ours.engine


if __name__ == "__main__":
    main(workload_from_json(sys.argv[1]), sys.argv[2])
