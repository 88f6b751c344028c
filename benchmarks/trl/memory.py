"""Peak memory of one side, in a process that runs nothing else."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.workload import Workload, workload_from_json

ROOT = Path(__file__).parents[2]
"""From here `benchmarks` can be imported."""
STEPS = 2
"""From the second step on, optimiser state and allocator are as in every later one."""


@dataclass(frozen=True)
class Memory:
    """Megabytes of a process that runs nothing but one side's steps."""

    peak: float
    after_imports: float


def peak_megabytes() -> float:
    """Of this process so far. Linux's own counter: `ru_maxrss` would include the parent's peak."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def measure_memory(work: Workload, side: str) -> Memory:
    """Run a few steps of one side in a process of its own."""
    command = [sys.executable, "-m", __name__, json.dumps(asdict(work)), side]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(  # noqa: S603 (our own module)
        command, capture_output=True, text=True, env=environment, cwd=ROOT
    )
    if done.returncode != 0:
        raise RuntimeError(f"the process measuring {side}'s memory failed:\n{done.stderr[-2000:]}")
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def main(work: Workload, side: str) -> None:
    """Run the steps and print what they took."""
    import torch

    torch.set_num_threads(1)
    memory = _trl_memory(work) if side == "trl" else _our_memory(work, side)
    print(json.dumps(asdict(memory)))


def _trl_memory(work: Workload) -> Memory:
    import trl.trainer.grpo_trainer  # noqa: F401 (its memory counts as imports)

    from benchmarks.trl.trl_step import run_trl

    imported = peak_megabytes()
    run_trl(work, work.make_model(), STEPS)
    return Memory(peak_megabytes(), imported)


def _our_memory(work: Workload, engine: str) -> Memory:
    from benchmarks.our_step import OurSide

    imported = peak_megabytes()
    side = OurSide(work, engine)
    for step in range(STEPS):
        side.step(step)
    return Memory(peak_megabytes(), imported)


if __name__ == "__main__":
    main(workload_from_json(sys.argv[1]), sys.argv[2])
