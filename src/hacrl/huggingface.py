"""Switches of Hugging Face's libraries: no progress bars, no downloads, no panics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import huggingface_hub.constants

KEEP_OFFLINE_FLAG = ("huggingface_hub.constants", "datasets.config")
"""Modules with a copy of the flag; the second takes it from the first when it is imported."""


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Without transformers' own progress bars, which would garble ours; downloads keep theirs."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def no_warnings() -> Iterator[None]:
    """Without transformers' own reports on a load, whose findings are errors here."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of a library written in Rust, which is no `Exception`, into a `ValueError`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the library gave up: {error}") from error


@contextmanager
def offline() -> Iterator[None]:
    """Read the local cache only, at once, instead of trying to connect for half a minute."""
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    _set_offline(True)
    try:
        yield
    finally:
        _set_offline(before)


def _set_offline(value: bool) -> None:
    for name in KEEP_OFFLINE_FLAG:
        if name in sys.modules:
            sys.modules[name].HF_HUB_OFFLINE = value  # type: ignore[attr-defined]
