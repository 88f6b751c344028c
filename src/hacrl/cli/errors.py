"""What a user can mend is told in one message, without a traceback, with exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def user_errors() -> Iterator[None]:
    """Print the message of hacrl's own errors and of those about values, files and missing packages."""
    try:
        yield
    except Exception as error:
        ours = type(error).__module__.startswith("hacrl.")  # told by name: importing them all would be slow
        if not (ours or isinstance(error, ValueError | OSError | ImportError)):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
