"""Where agents live: in this process (`local`), or each in a process of its own on a Ray cluster."""

from hacrl.runtime.base import AgentLost, Runtime, RuntimeFailure, Traffic
from hacrl.runtime.local import LocalRuntime

__all__ = ["AgentLost", "LocalRuntime", "Runtime", "RuntimeFailure", "Traffic"]
