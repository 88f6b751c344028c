"""How much memory a process uses, for the curves of a report."""

from __future__ import annotations

import resource
from pathlib import Path

import torch


def bytes_in_use(device: torch.device) -> int:
    """On a GPU the most that was allocated since the last call; on a CPU what the process holds now.

    Agents of a local run are in one process: on a CPU each of them reports what all of them use.
    """
    if device.type == "cuda":
        most = int(torch.cuda.max_memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        return most
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux: the most so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()
