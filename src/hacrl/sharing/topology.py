"""Who learns from whom: for every learner the names of the peers whose responses it receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

Topology = Mapping[str, tuple[str, ...]]
"""Learner -> the peers it learns from, sorted by name: an agent's place in a list never matters."""

TopologyKind = Literal["everybody", "nobody", "ring", "star", "pairs"]


def make_topology(
    kind: TopologyKind,
    agents: Sequence[str],
    *,
    hub: str | None = None,
    pairs: Iterable[tuple[str, str]] = (),
) -> Topology:
    """`hub` names the centre of a star; `pairs` lists `(source, learner)` for the kind "pairs"."""
    if not agents or len(set(agents)) != len(agents):
        raise ValueError(f"agents: expected different names, got {list(agents)}")
    if kind == "everybody":
        chosen = {(source, learner) for source in agents for learner in agents if source != learner}
    elif kind == "nobody":
        chosen = set()
    elif kind == "ring":
        chosen = _ring(agents)
    elif kind == "star":
        chosen = _star(agents, hub)
    elif kind == "pairs":
        chosen = _checked(pairs, agents)
    else:
        raise ValueError(f"topology: expected one of {get_args(TopologyKind)}, got {kind!r}")
    return {
        learner: tuple(sorted(source for source, taught in chosen if taught == learner)) for learner in agents
    }


def _ring(agents: Sequence[str]) -> set[tuple[str, str]]:
    """Everyone learns from the agent before it in the order of names, the first from the last."""
    names = sorted(agents)
    return {(names[n - 1], name) for n, name in enumerate(names) if len(names) > 1}


def _star(agents: Sequence[str], hub: str | None) -> set[tuple[str, str]]:
    """The hub learns from everyone, everyone learns from the hub."""
    if hub is None or hub not in agents:
        raise ValueError(f"hub: a star needs one of the agents {list(agents)} as its hub, got {hub!r}")
    others = [name for name in agents if name != hub]
    return {(hub, name) for name in others} | {(name, hub) for name in others}


def _checked(pairs: Iterable[tuple[str, str]], agents: Sequence[str]) -> set[tuple[str, str]]:
    chosen = set()
    for row, (source, learner) in enumerate(pairs):
        for name in (source, learner):
            if name not in agents:
                raise ValueError(f"pairs[{row}]: unknown agent {name!r}; the agents are {list(agents)}")
        if source == learner:
            raise ValueError(f"pairs[{row}]: {source!r} always learns from itself; name two different agents")
        if (source, learner) in chosen:
            raise ValueError(f"pairs[{row}]: {source!r} -> {learner!r} is listed twice")
        chosen.add((source, learner))
    return chosen
