"""Where agents run: in this process (`local`), or each in processes of its own on a Ray cluster (`ray`)."""

from hacrl.runtime.base import AgentLost, Runtime, RuntimeFailure, Traffic
from hacrl.runtime.local_runtime import LocalRuntime

__all__ = ["AgentLost", "LocalRuntime", "Runtime", "RuntimeFailure", "Traffic"]
