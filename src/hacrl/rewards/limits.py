"""How much a worker process may take, set by the kernel's resource limits."""

from __future__ import annotations

import contextlib
import math
import resource
from dataclasses import dataclass

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one worker process."""

    deadline: float = 10.0
    """Seconds for one call; then the process and everything it started is killed."""
    memory_mb: int = 4096
    """Address space of each process."""
    processes: int = 32
    """Processes and threads a worker may have: what holds a fork bomb until the deadline."""
    file_mb: int = 16
    """Largest file a process may write."""
    calls: int = 1000
    """A worker is replaced after this many calls, so that leaks do not add up."""
    confined: bool = True
    """No network, read-only files, an empty environment: where the system allows it."""


def apply_limits(limits: Limits, others: int) -> None:
    """Limit this process and its future children. A limit the system does not know is skipped.

    `others` are the user's processes that the kernel counts with the worker's.
    """
    wanted = {
        resource.RLIMIT_AS: limits.memory_mb * MEBIBYTE,
        resource.RLIMIT_FSIZE: limits.file_mb * MEBIBYTE,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: others + limits.processes,
    }
    for kind, most in wanted.items():
        _lower(kind, most)


def allow_cpu_seconds(seconds: float) -> None:
    """Let this process compute for that much longer; then the kernel ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds) + 1, hard=False)


def _lower(kind: int, most: int, hard: bool = True) -> None:
    with contextlib.suppress(ValueError, OSError):
        ceiling = resource.getrlimit(kind)[1]
        value = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(kind, (value, value if hard else ceiling))
