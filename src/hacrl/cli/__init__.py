"""The command line: one module per command, each loaded only when it is called."""

from hacrl.cli.app import main

__all__ = ["main"]
