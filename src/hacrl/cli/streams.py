"""Standard output and error that outlive their readers."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any, TextIO


class _Standard(io.FileIO):
    """Once the reader of a pipe has gone, or the terminal was closed, what is written is dropped."""

    def write(self, data: Any, /) -> int:
        """Like any file's, but it never fails for want of a reader."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            return len(data)


def outlive_readers() -> None:
    """Let this process go on after `| head -1` has read enough: a run must not end because of that."""
    sys.stdout, sys.stderr = (stream and _outliving(stream) for stream in (sys.stdout, sys.stderr))


def _outliving(stream: TextIO) -> TextIO:
    """The same stream; characters that its encoding lacks are written as escapes."""
    stream.flush()
    raw = _Standard(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or stream is sys.stderr,
        write_through=getattr(stream, "write_through", False),
    )
