"""An agent's errors; their messages say what to do about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class AgentError(Exception):
    """An agent cannot do what was asked of it; the message says why and what to change."""


class NonFiniteLoss(AgentError):
    """A loss or gradient is NaN or infinite. The weights have not been touched."""


class OutOfMemory(AgentError):
    """The device ran out of memory; the message names the settings to lower."""


class ServerAway(AgentError):
    """A server did not answer, however often it was asked."""


class EngineFailed(AgentError):
    """An agent's generation engine failed or does not hold the agent's weights: it cannot continue."""


@contextmanager
def explain_out_of_memory(agent: str, doing: str, settings: str) -> Iterator[None]:
    """Turn the device's out-of-memory error into one that names the settings to lower."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise OutOfMemory(f"agent {agent!r} ran out of memory while {doing}: lower {settings}") from error
