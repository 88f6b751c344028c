"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path


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
