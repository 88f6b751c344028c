from __future__ import annotations

import pytest

from hacrl.recipe.settings import ExchangeSettings
from hacrl.recipe.topology import make_topology, topology_problems

AGENTS = ["c", "a", "d", "b"]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("everybody", {"a": "bcd", "b": "acd", "c": "abd", "d": "abc"}),
        ("nobody", {"a": "", "b": "", "c": "", "d": ""}),
        ("ring", {"a": "d", "b": "a", "c": "b", "d": "c"}),
        ("star", {"a": "c", "b": "c", "c": "abd", "d": "c"}),
        ((("d", "a"), ("a", "d"), ("b", "a")), {"a": "bd", "b": "", "c": "", "d": "a"}),
    ],
)
def test_who_learns_from_whom(topology: object, expected: dict[str, str]) -> None:
    exchange = ExchangeSettings(topology=topology, hub="c" if topology == "star" else None)  # type: ignore[arg-type]
    for agents in (AGENTS, sorted(AGENTS)):
        assert not list(topology_problems(exchange, agents))
        found = make_topology(exchange, agents)
        assert dict(found) == {name: tuple(peers) for name, peers in expected.items()}


@pytest.mark.parametrize("topology", ["everybody", "nobody", "ring"])
def test_one_agent_learns_from_nobody_else(topology: str) -> None:
    assert make_topology(ExchangeSettings(topology=topology), ["a"]) == {"a": ()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"topology": "star"}, "exchange.hub: missing: a star needs one of the agents"),
        ({"topology": "star", "hub": "x"}, "exchange.hub: expected one of the agents"),
        ({"hub": "a"}, "exchange.hub: only a star has a hub"),
        ({"topology": (("a", "b"), ("x", "b"))}, "exchange.topology.1: expected two of the agents"),
        ({"topology": (("a", "a"),)}, "exchange.topology.0: expected two different agents, got 'a' twice"),
        ({"topology": (("a", "b"), ("a", "b"))}, "exchange.topology.1: the pair ['a', 'b'] is listed twice"),
    ],
)
def test_problems_name_the_key(settings: dict[str, object], problem: str) -> None:
    (found,) = topology_problems(ExchangeSettings(**settings), AGENTS)  # type: ignore[arg-type]
    assert str(found).startswith(problem)
