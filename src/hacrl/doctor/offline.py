"""Looking without fetching: what is not on this machine is not asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def offline() -> Iterator[None]:
    """The hub's libraries read their cache only, at once, instead of trying to connect for half a minute."""
    switches = _switches()
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    for switch in switches:
        switch.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value


def _switches() -> list[Any]:
    """The modules that keep the setting; datasets has a copy of its own, if it is installed."""
    import huggingface_hub.constants

    try:
        import datasets.config
    except ImportError:  # then no task can come from the hub
        return [huggingface_hub.constants]
    return [huggingface_hub.constants, datasets.config]
