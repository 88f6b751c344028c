"""Worker processes: limit what they may use, isolate them, and kill them with everything they started.

On Linux a worker is put into namespaces of its own, as far as the system allows it:

- A process namespace: when its first process dies, the kernel kills all others in it.
- Confined workers: no network, no shared memory with others, all files read-only except a scratch directory.
- If the trainer runs as root, the worker gets an unprivileged user id of its own: the kernel does not limit
  the number of root's processes, and root may overwrite every file.
- It gives up all capabilities, also those over its own namespaces, which could make files writable again.

Each of these is attempted. If one fails, the worker reports it and runs without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import secrets
import signal
import stat
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hacrl.defaults import DEADLINE_SECONDS, MAX_DEADLINE_SECONDS

MEBIBYTE = 2**20
PATIENCE = 10.0
"""Seconds after which `kill_descendants` gives up on processes that are stuck in the kernel."""
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _SYS_MOUNT_SETATTR = -100, 0x8000, 1, 442
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 8, 36, 38
_CAP_DAC_READ_SEARCH, _CAPABILITY_VERSION = 2, 0x20080522
_FIRST_USER, _USERS = 1_000_000_000, 1_000_000_000
"""Workers' user ids are drawn from this range, above all ids in use."""
SCRATCH_MB = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one worker process."""

    deadline: float = DEADLINE_SECONDS
    """Seconds for one call; then the process and everything it started is killed."""
    memory_mb: int = 4096
    """Address space of each process."""
    processes: int = 32
    """Processes and threads a worker may have. This contains a fork bomb until the deadline."""
    file_mb: int = 16
    """Largest file a process may write."""
    calls: int = 1000
    """A worker is replaced after this many calls, so that memory leaks do not accumulate."""
    confined: bool = True
    """No network, read-only files and a minimal environment, where the system allows it."""

    def __post_init__(self) -> None:
        if not 0 < self.deadline <= MAX_DEADLINE_SECONDS:  # also refuses NaN
            raise ValueError(
                f"the deadline of a verifier is {self.deadline} seconds; it has to be above 0 and at most "
                f"{MAX_DEADLINE_SECONDS:g}"
            )


def apply_limits(limits: Limits, others: int) -> None:
    """Limit this process and its future children. A limit the system does not support is skipped.

    `others` is the number of the user's other processes: the kernel counts them together with the worker's.
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
    """Give this process that much more CPU time; after that the kernel kills it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds) + 1, hard=False)


def _lower(kind: int, most: int, hard: bool = True) -> None:
    with contextlib.suppress(ValueError, OSError):
        ceiling = resource.getrlimit(kind)[1]
        value = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(kind, (value, value if hard else ceiling))


def new_process_namespace() -> bool:
    """Make the next fork the first process of a new namespace: when it dies, so does the whole namespace."""
    uid, gid = os.getuid(), os.getgid()
    try:
        _call("unshare", _NEWPID if uid == 0 else _NEWPID | _NEWUSER)
        if uid != 0:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except (OSError, AttributeError):
        return False
    return True


def leave_network() -> bool:
    """Cut this process off from the network, loopback included, and from others' shared memory."""
    try:
        _call("unshare", _NEWNET | _NEWIPC)
    except (OSError, AttributeError):
        return False
    return True


def protect_files(scratch: str) -> bool:
    """Make every file read-only for this mount namespace and mount a small file system at `scratch`.

    It has the owner of the directory that it covers.
    """
    try:
        owner = os.stat(scratch)
        _call("unshare", _NEWNS)
        _call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        _call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV, None)
        attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
        arguments = (_AT_FDCWD, b"/", _AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
        _call("syscall", ctypes.c_long(_SYS_MOUNT_SETATTR), *arguments)
        options = f"size={SCRATCH_MB}m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}".encode()
        _call("mount", b"tmpfs", scratch.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
    except (OSError, AttributeError):
        return False
    return True


def draw_user() -> int:
    """The user id for a new worker: under root one that nothing else has, or else the trainer's."""
    return _FIRST_USER + secrets.randbelow(_USERS) if os.getuid() == 0 else os.getuid()


def drop_privileges(user: int, path: Sequence[str]) -> bool:
    """Give up all capabilities and, if root, become this user; whether that is not the trainer's any more.

    Different users cannot signal each other, and the kernel counts their processes separately. The right to
    *read* every file is kept if the interpreter or the modules on `path` cannot be read otherwise.
    """
    is_root = os.getuid() == 0
    keep_reading = is_root and not _are_public(sys.prefix, sys.base_prefix, *sys.path, *path)
    try:
        if is_root:
            _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        _set_capabilities(1 << _CAP_DAC_READ_SEARCH if keep_reading else 0)
    except (OSError, AttributeError):
        return False
    return is_root


def forbid_new_privileges() -> None:
    """Keep set-uid programs from giving this process or its children more rights."""
    _try_prctl(_PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be found and killed."""
    _try_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the parent dies."""
    _try_prctl(_PR_SET_PDEATHSIG, signal_number)


def _are_public(*folders: str) -> bool:
    """Whether every user may enter these directories."""
    places = {Path(folder).resolve() for folder in folders if os.path.isdir(folder)}
    entered = {folder for place in places for folder in (place, *place.parents)}
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in entered)


def _set_capabilities(wanted: int) -> None:
    held = _capabilities() & wanted
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # effective, permitted, inheritable; then the same for capabilities 32 and above
    _call("capset", header, (ctypes.c_uint32 * 6)(held, held, 0, 0, 0, 0))


def _capabilities() -> int:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    _call("capget", header, data)
    return int(data[1])


def _try_prctl(option: int, value: int) -> None:
    try:
        _call("prctl", option, value, 0, 0, 0)
    except (OSError, AttributeError):  # not Linux
        return


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)


def kill_descendants(pid: int) -> None:
    """SIGKILL all descendants of `pid` until none is left, also those that left its group or session.

    The process must have called `adopt_orphans`, so that its descendants stay below it in the process tree.
    """
    if not Path("/proc/self").exists():  # not Linux: only the process group can be found
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    give_up = time.monotonic() + PATIENCE
    while (children := descendants(pid)) and time.monotonic() < give_up:
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def descendants(pid: int) -> list[int]:
    """All living descendants of `pid`; empty on systems without /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for process in _processes():
        with contextlib.suppress(OSError):  # it has ended since
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children[int(parent)].append(int(process.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _processes() -> list[Path]:
    """One /proc directory each. Not by glob: it looks inside and fails when a process ends meanwhile."""
    proc = Path("/proc")
    return [proc / name for name in os.listdir(proc) if name.isdigit()] if proc.exists() else []


def reap() -> None:
    """Reap dead children without waiting for living ones."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def tasks_of_this_user() -> int:
    """The user's processes and threads, which is what RLIMIT_NPROC counts."""
    count = 0
    for process in _processes():
        with contextlib.suppress(OSError):  # it has ended since
            tasks = process / "task"
            count += len(os.listdir(tasks)) if tasks.stat().st_uid == os.getuid() else 0
    return count
