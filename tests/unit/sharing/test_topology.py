from __future__ import annotations

import pytest

from hacrl.sharing.topology import TopologyKind, make_topology

AGENTS = ["c", "a", "d", "b"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("everybody", {"a": "bcd", "b": "acd", "c": "abd", "d": "abc"}),
        ("nobody", {"a": "", "b": "", "c": "", "d": ""}),
        ("ring", {"a": "d", "b": "a", "c": "b", "d": "c"}),
        ("star", {"a": "c", "b": "c", "c": "abd", "d": "c"}),
        ("pairs", {"a": "bd", "b": "", "c": "", "d": "a"}),
    ],
)
def test_who_hears_whom(kind: TopologyKind, expected: dict[str, str]) -> None:
    pairs = [("d", "a"), ("a", "d"), ("b", "a")]
    for agents in (AGENTS, sorted(AGENTS)):
        topology = make_topology(kind, agents, hub="c", pairs=pairs)
        assert dict(topology) == {name: tuple(peers) for name, peers in expected.items()}


@pytest.mark.parametrize("kind", ["everybody", "nobody", "ring"])
def test_one_agent_hears_nobody(kind: TopologyKind) -> None:
    assert make_topology(kind, ["a"]) == {"a": ()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "circle"}, "topology: expected one of .*'circle'"),
        ({"kind": "star"}, "hub: .* got None"),
        ({"kind": "star", "hub": "x"}, "hub: .* got 'x'"),
        ({"kind": "pairs", "pairs": [("a", "b"), ("x", "b")]}, r"pairs\[1\]: unknown agent 'x'"),
        ({"kind": "pairs", "pairs": [("a", "a")]}, r"pairs\[0\]: 'a' always learns from itself"),
        ({"kind": "pairs", "pairs": [("a", "b"), ("a", "b")]}, r"pairs\[1\]: .* listed twice"),
        ({"kind": "ring", "agents": ["a", "a"]}, "agents: expected different names"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_topology(**{"agents": AGENTS, **arguments})  # type: ignore[arg-type]
