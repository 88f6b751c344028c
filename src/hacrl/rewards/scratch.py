"""The scratch directory of a worker: fresh, its own, and removed with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile


def make_scratch(user: int) -> str:
    """A new directory with mode 0700 that belongs to this user.

    Its parent belongs to the trainer: the worker can enter it, but neither list it nor replace the directory.
    """
    parent = tempfile.mkdtemp(prefix="hacrl-")
    scratch = os.path.join(parent, "scratch")
    os.mkdir(scratch, mode=0o700)
    with contextlib.suppress(
        OSError
    ):  # the worker cannot take this id either, and remains the trainer's user
        os.chown(scratch, user, user if user != os.getuid() else -1)
    os.chmod(parent, 0o711)  # noqa: S103
    return scratch


def remove_scratch(scratch: str) -> None:
    """Remove the directory with all that is in it, and its parent."""
    shutil.rmtree(os.path.dirname(scratch), ignore_errors=True)
