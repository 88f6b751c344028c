"""Looking without fetching: what is not on this machine is not asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import huggingface_hub.constants

KEPT_IN = ("huggingface_hub.constants", "datasets.config")
"""Modules with a copy of the setting; the second takes it from the first when it is imported."""


@contextmanager
def offline() -> Iterator[None]:
    """The hub's libraries read their cache only, at once, instead of trying to connect for half a minute."""
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    _set(True)
    try:
        yield
    finally:
        _set(before)


def _set(value: bool) -> None:
    for name in KEPT_IN:
        if name in sys.modules:
            sys.modules[name].HF_HUB_OFFLINE = value  # type: ignore[attr-defined]
