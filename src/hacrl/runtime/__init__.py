"""Where agents run: in this process (`local`), or each in processes of its own on a Ray cluster (`ray`)."""

from hacrl.runtime.base import AgentLost, Runtime, RuntimeFailure, Traffic

__all__ = ["AgentLost", "Runtime", "RuntimeFailure", "Traffic"]
