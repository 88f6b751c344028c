from __future__ import annotations

from typing import Any

from hacrl.agents.policy import Policy
from hacrl.runtime.base import AgentProxy


class Recorder(AgentProxy):
    """Keeps the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def call_policy(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append((method, arguments))
        return len(self.calls)


def test_a_proxy_passes_on_the_policys_calls_with_positional_arguments_and_defaults():
    proxy: Any = Recorder()
    assert proxy.score(["row"]) == 1
    assert proxy.update("batches", objective="loss") == 2
    assert proxy.fingerprint() == 3
    assert proxy.calls == [
        ("score", (["row"],)),
        ("update", ("batches", "loss", 0, None)),
        ("fingerprint", ()),
    ]


def test_a_proxys_methods_are_documented_as_the_policys():
    assert AgentProxy.sample.__doc__ == Policy.sample.__doc__
