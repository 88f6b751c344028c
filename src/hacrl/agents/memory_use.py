"""How much memory a process uses, for the curves of a report, and giving back what it does not need."""

from __future__ import annotations

import ctypes
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


def give_back(device: torch.device) -> None:
    """Return freed memory of the CPU to the system.

    glibc keeps it, in pieces that are too small for the next large tensor: a gigabyte or two when models
    take turns. Other allocators are left alone.
    """
    if device.type == "cpu" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
