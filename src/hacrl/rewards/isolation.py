"""Put a worker process into Linux namespaces of its own, as far as the system allows it.

- A process namespace: when its first process dies, the kernel kills all others in it.
- Confined workers: no network, no shared memory with others, all files read-only but for a scratch directory.
- When the trainer is run by root, the worker gets a user id of its own without privileges: the kernel does
  not limit root's number of processes, and root may overwrite everything.

Every step is tried; what could not be had is reported, and is not fatal.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _SYS_MOUNT_SETATTR = -100, 0x8000, 1, 442
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 8, 36, 38
_CAP_DAC_READ_SEARCH, _CAPABILITY_VERSION = 2, 0x20080522
_FIRST_UID = 1_000_000_000
"""Above all user ids in use."""
SCRATCH_MB = 64


def new_process_namespace() -> bool:
    """The next fork becomes the first process of a namespace that dies with it."""
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
    """From here on there is no network, not even the machine's own, and no shared memory of others."""
    try:
        _call("unshare", _NEWNET | _NEWIPC)
    except (OSError, AttributeError):
        return False
    return True


def protect_files(scratch: str) -> bool:
    """Make every file read-only for this mount namespace and mount a small file system at `scratch`."""
    try:
        _call("unshare", _NEWNS)
        _call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        _call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV, None)
        attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
        arguments = (_AT_FDCWD, b"/", _AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
        _call("syscall", ctypes.c_long(_SYS_MOUNT_SETATTR), *arguments)
        options = f"size={SCRATCH_MB}m,mode=0777".encode()
        _call("mount", b"tmpfs", scratch.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
    except (OSError, AttributeError):
        return False
    return True


def drop_privileges(number: int) -> bool:
    """Become an unprivileged user when root; the right to *read* is kept where the interpreter needs it.

    `number` makes the user id: workers with different numbers cannot signal each other and are counted apart.
    """
    if os.getuid() != 0:
        return True
    uid = _FIRST_UID + number
    keep_reading = not _interpreter_is_public()
    try:
        _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        _set_capabilities(1 << _CAP_DAC_READ_SEARCH if keep_reading else 0)
    except (OSError, AttributeError):
        return False
    return True


def forbid_new_privileges() -> None:
    """No set-uid program gives this process or its children more rights."""
    _try_prctl(_PR_SET_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be found and killed."""
    _try_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Get this signal when the parent dies."""
    _try_prctl(_PR_SET_PDEATHSIG, signal_number)


def _interpreter_is_public() -> bool:
    """Whether every user may enter the directories of the interpreter and of everything importable."""
    places = {
        Path(place).resolve() for place in (sys.prefix, sys.base_prefix, *sys.path) if os.path.isdir(place)
    }
    folders = {folder for place in places for folder in (place, *place.parents)}
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


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
    except (OSError, AttributeError):  # not Linux: the caller's other means have to do
        return


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
